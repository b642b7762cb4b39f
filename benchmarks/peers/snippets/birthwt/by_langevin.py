import pandas as pd

import langevin as lv

table = pd.read_csv("birthwt.csv")
names = ["C(race)[T.2]", "C(race)[T.3]", "smoke", "ht", "ui"]
priors = {"Intercept": "normal(-1, 1)", "age": "normal(0, 0.1)", "lwt": "normal(0, 0.05)"}
priors |= dict.fromkeys(names, "normal(0, 1)")
fit = lv.fit(table, "low ~ age + lwt + C(race) + smoke + ht + ui", family="bernoulli", priors=priors)
print(fit)
