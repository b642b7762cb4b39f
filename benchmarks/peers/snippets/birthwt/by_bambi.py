import arviz as az
import bambi as bmb
import pandas as pd

table = pd.read_csv("birthwt.csv")
priors = dict.fromkeys(["C(race)", "smoke", "ht", "ui"], bmb.Prior("Normal", mu=0, sigma=1))
priors |= {
    "Intercept": bmb.Prior("Normal", mu=-1, sigma=1),
    "age": bmb.Prior("Normal", mu=0, sigma=0.1),
    "lwt": bmb.Prior("Normal", mu=0, sigma=0.05),
}
model = bmb.Model("low ~ age + lwt + C(race) + smoke + ht + ui", table, family="bernoulli", priors=priors)
draws = model.fit(chains=4, random_seed=1)
print(az.summary(draws))
