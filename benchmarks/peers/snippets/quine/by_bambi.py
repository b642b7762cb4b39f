import arviz as az
import bambi as bmb
import pandas as pd

table = pd.read_csv("quine.csv")
priors = dict.fromkeys(["Eth", "Sex", "Age", "Lrn"], bmb.Prior("Normal", mu=0, sigma=1))
priors |= {"Intercept": bmb.Prior("Normal", mu=3, sigma=1), "alpha": bmb.Prior("Exponential", lam=1)}
model = bmb.Model("Days ~ Eth + Sex + Age + Lrn", table, family="negativebinomial", priors=priors)
draws = model.fit(chains=4, random_seed=1)
print(az.summary(draws))
