"""Mixed models: latent effects of each group integrated out, so that a group is a datum."""

from langevin.mixed.covariance import covariance_root
from langevin.mixed.groups import Groups, groups
from langevin.mixed.marginal import Marginal, marginal

__all__ = ["Groups", "Marginal", "covariance_root", "groups", "marginal"]
