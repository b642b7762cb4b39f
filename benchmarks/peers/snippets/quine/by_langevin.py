import pandas as pd

import langevin as lv

table = pd.read_csv("quine.csv")
names = ["Eth[T.N]", "Sex[T.M]", "Age[T.F1]", "Age[T.F2]", "Age[T.F3]", "Lrn[T.SL]"]
priors = {"Intercept": "normal(3, 1)"} | dict.fromkeys(names, "normal(0, 1)")
fit = lv.fit(table, "Days ~ Eth + Sex + Age + Lrn", family="negative-binomial", priors=priors)
print(fit)
