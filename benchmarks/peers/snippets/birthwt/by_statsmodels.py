import pandas as pd
import statsmodels.formula.api as smf

table = pd.read_csv("birthwt.csv")
ml = smf.logit("low ~ age + lwt + C(race) + smoke + ht + ui", table).fit(disp=False)
print(ml.summary())
