"""How to cite the library and the paper that it stands on."""

from importlib.metadata import version

PAPER = (
    "Y. W. Teh, A. H. Thiery and S. J. Vollmer: Consistency and fluctuations for stochastic gradient Langevin "
    "dynamics. Journal of Machine Learning Research 17 (2016), 1-33"
)


def software() -> str:
    """The library, with its version: results depend on it."""
    return f"langevin {version('langevin')}: expectations under Bayesian posteriors from minibatches, with error bars"


def bibtex() -> str:
    """Both as BibTeX entries."""
    return f"""@software{{langevin,
  title   = {{langevin: expectations under {{Bayesian}} posteriors from minibatches, with error bars}},
  version = {{{version("langevin")}}},
}}

@article{{teh2016consistency,
  author  = {{Teh, Yee Whye and Thiery, Alexandre H. and Vollmer, Sebastian J.}},
  title   = {{Consistency and fluctuations for stochastic gradient {{Langevin}} dynamics}},
  journal = {{Journal of Machine Learning Research}},
  volume  = {{17}},
  number  = {{7}},
  pages   = {{1--33}},
  year    = {{2016}},
}}"""
