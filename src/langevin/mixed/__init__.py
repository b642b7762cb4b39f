"""Mixed models: latent effects of each group integrated out, so that a group is a datum."""



from langevin.mixed.marginal import Marginal, marginal

__all__ = ["Groups", "Marginal", "covariance_root", "groups", "marginal"]
