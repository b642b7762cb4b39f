import pandas as pd
import statsmodels.formula.api as smf

table = pd.read_csv("sleepstudy.csv")
ml = smf.mixedlm("Reaction ~ Days", table, groups="Subject", re_formula="~Days").fit(reml=False)
print(ml.summary())
