"""Minibatch gradients with the noise at the anchor removed, to first or second order."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from langevin.anchor import Anchor


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ControlVariate:
    """Minibatch gradient minus its Taylor polynomial at the anchor, plus the polynomial's exact sum over all data.

    order 1:  term_i = g_i(theta) - g_i(a),                          base = grad log prior(theta) + sum_i g_i(a)
    order 2:  term_i = g_i(theta) - g_i(a) - Hess_i(a) (theta - a), base = order 1 + sum_i Hess_i(a) (theta - a)

    with g_i the gradient of one log likelihood and a the anchor (`lv.laplace`). One `jvp` of g_i at a gives both parts:
    no N x d table is stored. Cost: n datum visits. Whitened noise variance about d/n (order 1) and of order 1/(N n)
    (order 2): far from the anchor it can exceed that of the plain gradient.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> anchor = lv.laplace(model.target, model.data, 0.0)
        >>> one = lv.ControlVariate(anchor, order=2).term(lambda t: model.target.log_likelihood(t, 3.0), 1.0)
        >>> abs(float(one)) < 1e-6  # a Gaussian likelihood leaves no remainder
        True
    """

    anchor: Anchor
    order: int = field(default=1, metadata={"static": True})

    def __post_init__(self) -> None:
        # JAX rebuilds registered dataclasses with placeholders: only what a user could have meant is refused.
        if isinstance(self.anchor, (str, int, float, np.ndarray)):
            raise ValueError(f"anchor must come from lv.laplace(target, data, theta_0), got {self.anchor!r}.")
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}. Order 2 needs an affordable Hessian.")
        if isinstance(self.anchor, Anchor) and self.anchor.likelihood_grad is None and self.anchor.theta is not None:
            raise ValueError("anchor must come from data: the target has no log_likelihood to subsample. Use Full().")

    def base(self, target, theta):
        """The part that needs no data: the prior's gradient and the polynomial's sum over all data."""
        anchor, layout = self.anchor, self.anchor.layout
        total = anchor.likelihood_grad
        if self.order == 2:
            total = total + jnp.dot(anchor.likelihood_hessian, layout.ravel(theta) - anchor.theta)
        return jax.tree.map(jnp.add, jax.grad(target.log_prior)(theta), layout.unravel(total))

    @property
    def anchored(self):
        """Whether the base holds the whole Laplace model: to second order it does."""
        return self.order == 2

    def beyond(self, target, theta):
        """What base holds beyond the Laplace model: the gradient at the anchor, and the prior's own remainder."""
        prior = jax.grad(target.log_prior)
        anchor, total = (
            self.anchor.layout.unravel(self.anchor.theta),
            self.anchor.layout.unravel(self.anchor.likelihood_grad),
        )
        there, along = jax.jvp(prior, (anchor,), (jax.tree.map(jnp.subtract, theta, anchor),))
        return jax.tree.map(
            lambda here, p, q, sum_grad: here - (p + q) + (p + sum_grad), prior(theta), there, along, total
        )

    def term(self, log_likelihood, theta):
        """The remainder of the gradient beyond the polynomial."""
        grad = jax.grad(log_likelihood)
        anchor = self.anchor.layout.unravel(self.anchor.theta)
        if self.order == 1:
            return jax.tree.map(jnp.subtract, grad(theta), grad(anchor))
        step = jax.tree.map(jnp.subtract, theta, anchor)
        there, along = jax.jvp(grad, (anchor,), (step,))
        return jax.tree.map(lambda g, g_a, h_a: g - (g_a + h_a), grad(theta), there, along)
