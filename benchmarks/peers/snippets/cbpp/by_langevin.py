import pandas as pd

import langevin as lv

table = pd.read_csv("cbpp.csv")
names = ["C(period)[T.2]", "C(period)[T.3]", "C(period)[T.4]"]
priors = {"Intercept": "normal(0, 2)"} | dict.fromkeys(names, "normal(0, 1)")
fit = lv.fit(table, "incidence ~ C(period) + (1 | herd)", family="binomial", trials="size", priors=priors)
print(fit)
