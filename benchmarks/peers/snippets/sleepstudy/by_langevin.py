import pandas as pd

import langevin as lv

table = pd.read_csv("sleepstudy.csv")
priors = {"Intercept": "normal(300, 100)", "Days": "normal(0, 20)"}
fit = lv.fit(table, "Reaction ~ Days + (1 + Days | Subject)", priors=priors)
print(fit)
