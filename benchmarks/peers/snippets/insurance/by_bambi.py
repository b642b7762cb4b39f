import arviz as az
import bambi as bmb
import numpy as np  # noqa: F401, for the formula
import pandas as pd

table = pd.read_csv("insurance.csv")
priors = {"Intercept": bmb.Prior("Normal", mu=-2, sigma=1)}
priors |= dict.fromkeys(["C(District)", "Group", "Age"], bmb.Prior("Normal", mu=0, sigma=1))
formula = "Claims ~ C(District) + Group + Age + offset(np.log(Holders))"
model = bmb.Model(formula, table, family="poisson", priors=priors)
draws = model.fit(chains=4, random_seed=1)
print(az.summary(draws))
