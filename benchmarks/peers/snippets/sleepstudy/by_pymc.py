import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

table = pd.read_csv("sleepstudy.csv")
days, mean_days = table.Days.to_numpy(), table.Days.mean()
subject, subjects = pd.factorize(table.Subject)
units = table.Reaction.std(ddof=0) / np.array([1.0, table.Days.std(ddof=0)])
with pm.Model():
    level = pm.Normal("level", 300, 100)
    slope = pm.Normal("Days", 0, 20)
    pm.Deterministic("Intercept", level - slope * mean_days)
    sigma = pm.Exponential("sigma", scale=units[0])
    root, _, _ = pm.LKJCholeskyCov("root", n=2, eta=1, sd_dist=pm.Exponential.dist(scale=units, shape=2))
    effects = pm.Normal("z", shape=(len(subjects), 2)) @ root.T
    mean = level + slope * (days - mean_days) + effects[subject, 0] + effects[subject, 1] * days
    pm.Normal("Reaction", mean, sigma, observed=table.Reaction)
    draws = pm.sample(chains=4, random_seed=1)
print(az.summary(draws, var_names=["Intercept", "Days", "sigma", "root_stds", "root_corr"]))
