"""The plain minibatch gradient."""

from dataclasses import dataclass

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Minibatch:
    """grad log prior(theta) + (N/n) sum_{i in batch} grad log likelihood(theta, datum_i).

    Cost: n datum visits. Whitened noise variance about N/n; with `Full()` it is the exact gradient.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
        >>> gradient, theta = lv.Minibatch(), 1.0
        >>> float(gradient.base(target, theta) + 10 / 1 * gradient.term(lambda t: target.log_likelihood(t, 3.0), theta))
        19.0
    """

    def base(self, target, theta):
        """grad log prior."""
        return jax.grad(target.log_prior)(theta)

    def term(self, log_likelihood, theta):
        """grad log likelihood."""
        return jax.grad(log_likelihood)(theta)
