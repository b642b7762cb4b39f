"""No test may depend on what earlier runs have compiled, nor leave anything in the user's folders."""

import os

os.environ["LANGEVIN_NO_CACHE"] = "1"
