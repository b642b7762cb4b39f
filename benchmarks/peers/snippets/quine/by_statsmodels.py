import pandas as pd
import statsmodels.formula.api as smf

table = pd.read_csv("quine.csv")
ml = smf.negativebinomial("Days ~ Eth + Sex + Age + Lrn", table).fit(maxiter=200, disp=False)
print(ml.summary())
