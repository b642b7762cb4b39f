"""Models whose posterior is known, in closed form or by quadrature: the truth to compare a run with; and LDA."""

from langevin.models.lda import LDA
from langevin.models.linear_gaussian import LinearGaussian
from langevin.models.logistic import Logistic
from langevin.models.quadrature import PosteriorQuadrature, Truth, posterior_moments

__all__ = ["LDA", "LinearGaussian", "Logistic", "PosteriorQuadrature", "Truth", "posterior_moments"]
