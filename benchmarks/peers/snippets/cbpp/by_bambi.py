import arviz as az
import bambi as bmb
import pandas as pd

table = pd.read_csv("cbpp.csv")
priors = {
    "Intercept": bmb.Prior("Normal", mu=0, sigma=2),
    "C(period)": bmb.Prior("Normal", mu=0, sigma=1),
    "1|herd": bmb.Prior("Normal", mu=0, sigma=bmb.Prior("Exponential", lam=1)),
}
model = bmb.Model("p(incidence, size) ~ C(period) + (1 | herd)", table, family="binomial", priors=priors)
draws = model.fit(chains=4, random_seed=1)
print(az.summary(draws))
