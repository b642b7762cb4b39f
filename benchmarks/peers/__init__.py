"""`lv.fit` beside Bambi, PyMC and statsmodels on five real tables: the same models with the same priors."""
