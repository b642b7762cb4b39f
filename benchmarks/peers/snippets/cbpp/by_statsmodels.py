import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp
from scipy.stats import binom
from statsmodels.base.model import GenericLikelihoodModel

table = pd.read_csv("cbpp.csv")
nodes, weights = np.polynomial.hermite_e.hermegauss(60)


class Mixed(GenericLikelihoodModel):
    def loglike(self, params):
        eta = (self.exog @ params[:-1])[:, None] + np.exp(params[-1]) * nodes
        rows = pd.DataFrame(binom.logpmf(self.endog[:, None], table[["size"]], expit(eta)))
        return logsumexp(rows.groupby(table.herd).sum(), b=weights / weights.sum(), axis=1).sum()


model = Mixed.from_formula("incidence ~ C(period)", table, extra_params_names=["log sd(Intercept | herd)"])
ml = model.fit(start_params=np.zeros(5), method="bfgs", disp=False)
print(ml.summary())
