import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf

table = pd.read_csv("insurance.csv")
formula = "Claims ~ C(District) + Group + Age"
ml = smf.glm(formula, table, family=sm.families.Poisson(), offset=np.log(table.Holders)).fit()
print(ml.summary())
