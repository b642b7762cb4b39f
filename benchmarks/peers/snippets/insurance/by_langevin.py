import numpy as np
import pandas as pd

import langevin as lv

table = pd.read_csv("insurance.csv")
names = ["C(District)[T.2]", "C(District)[T.3]", "C(District)[T.4]", "Group[T.1.5-2l]", "Group[T.<1l]"]
names += ["Group[T.>2l]", "Age[T.30-35]", "Age[T.<25]", "Age[T.>35]"]
priors = {"Intercept": "normal(-2, 1)"} | dict.fromkeys(names, "normal(0, 1)")
formula = "Claims ~ C(District) + Group + Age"
fit = lv.fit(table, formula, family="poisson", offset=np.log(table.Holders), priors=priors)
print(fit)
