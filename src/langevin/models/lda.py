"""Latent Dirichlet allocation: topics of documents, with gradients by Gibbs sampling inside minibatches."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from langevin.target import Target

Array = Any


def _tokens(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """The words of each document one after the other, (D, length of the longest), -1 after the last."""
    lengths = counts.sum(axis=1)
    tokens = np.full((len(counts), lengths.max()), -1, np.int32)
    for row, document in enumerate(counts):
        tokens[row, : lengths[row]] = np.repeat(np.arange(len(document)), document)
    return tokens


@dataclass(frozen=True, eq=False)
class LDA:
    """Latent Dirichlet allocation with collapsed weights, in expanded-mean coordinates.

        theta_kw ~ Gamma(b, 1),  topic_k = theta_k / sum of theta_k,  weights_d ~ Dirichlet(alpha),
        words of d ~ weights_d topics,    grad log p(d | theta) = E[n_dkw / theta_kw - n_dk / sum of theta_k | d].

    `counts` (D, V) says how often each of V words occurs in each of D documents. `gradient` estimates the expectation
    over the assignments of words to topics by Gibbs sampling within `batch_size` documents drawn anew in every step:
    `sweeps` rounds of weights given counts and counts given weights, the last half of them averaged, words' shares
    exactly rather than drawn. Unbiased as sweeps grow. Pass it to `lv.run` with `kernel=lv.SGRLD()` and data=None. Cost
    of a gradient: `batch_size` documents, and that is what the ledger counts; memory: an integer for each word of each
    document, padded to the longest.

    Blei, Ng and Jordan, *Latent Dirichlet allocation* (2003); Patterson and Teh, *Stochastic gradient Riemannian
    Langevin dynamics on the probability simplex* (2013).

    Example:
        >>> import langevin as lv, numpy as np
        >>> model = lv.models.LDA(np.random.default_rng(0).poisson(0.5, (50, 30)), topics=3)
        >>> ledger = lv.run(model.target, None, model.theta_0(), kernel=lv.SGRLD(), gradient=model.gradient(5),
        ...                 schedule=lv.Constant(0.01), num_steps=50, observables={"topics": model.normalised})
        >>> lv.estimate(ledger)["topics"].value.sum(axis=1).round(3).tolist()
        [1.0, 1.0, 1.0]
    """

    counts: NDArray[np.int64]
    topics: int
    alpha: float = 0.1
    b: float = 0.1

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        whole = counts.ndim == 2 and counts.size and np.all(counts >= 0) and np.array_equal(counts, counts.astype(int))
        if not whole or not np.all(counts.sum(axis=1) > 0):
            raise ValueError(
                f"counts must be how often each word occurs in each document, (documents, words), whole numbers and no "
                f"empty document, got shape {counts.shape}. Leave empty documents out."
            )
        object.__setattr__(self, "counts", counts.astype(np.int64))
        if not isinstance(self.topics, int) or self.topics < 2:
            raise ValueError(f"topics must be an integer of at least 2, got {self.topics!r}. Try 20.")
        for name in ("alpha", "b"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)!r}. Try 0.1.")

    @property
    def target(self) -> Target:
        """The prior alone: what the documents say comes with the gradient."""
        return Target(_GammaPrior(self.b))

    def theta_0(self, seed: int = 0) -> NDArray[np.float32]:
        """A start: the words' frequencies, each topic shaken by itself; (topics, words)."""
        shaken = np.random.default_rng(seed).gamma(1.0, 1.0, (self.topics, self.counts.shape[1]))
        frequency = (self.counts.sum(axis=0) + 1.0) / self.topics
        return (frequency * shaken + 0.01).astype(np.float32)

    @staticmethod
    def normalised(theta: Array) -> Array:
        """Topics: the distribution of words in each, for theta (topics, words)."""
        return theta / jnp.sum(theta, axis=-1, keepdims=True)

    def gradient(self, batch_size: int, sweeps: int = 20) -> "DocumentGradient":
        """The estimate of the gradient from `batch_size` documents a step."""
        for name, value, least in (("batch_size", batch_size, 1), ("sweeps", sweeps, 2)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}. Try {name}=20.")
        return DocumentGradient(_tokens(self.counts), np.float32(self.alpha), np.float32(self.b), batch_size, sweeps)

    def perplexity(self, topics: ArrayLike, seen: ArrayLike, hidden: ArrayLike, rounds: int = 100) -> float:
        """exp of minus the mean log probability of the `hidden` words of documents whose `seen` words are known.

        Weights of a document are fitted to its seen words (`rounds` of the mean-field update); counts as in `counts`.
        """
        from scipy.special import digamma

        topics, seen, hidden = (np.asarray(part, np.float64) for part in (topics, seen, hidden))
        weights = np.full((len(seen), len(topics)), 1.0 / len(topics))
        for _ in range(rounds):
            strength = self.alpha + weights * ((seen / np.maximum(weights @ topics, 1e-300)) @ topics.T)
            weights = np.exp(digamma(strength) - digamma(strength.sum(axis=1, keepdims=True)))
        mean = strength / strength.sum(axis=1, keepdims=True)
        return float(np.exp(-np.sum(hidden * np.log(np.maximum(mean @ topics, 1e-300))) / hidden.sum()))


@dataclass(frozen=True)
class _GammaPrior:
    """Equal for equal b, so that models share compiled programs."""

    b: float

    def __call__(self, theta: Array) -> Array:
        return jnp.sum((self.b - 1.0) * jnp.log(theta) - theta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class DocumentGradient:
    """The gradient of `LDA` from a few documents: a `CustomGradient`, random by its documents and Gibbs sampling."""

    tokens: Array
    alpha: Array
    b: Array
    batch_size: int = field(metadata={"static": True})
    sweeps: int = field(metadata={"static": True})

    def draw(self, key: Array) -> Array:
        """The key: documents and sweeps take what they need from it."""
        return key

    def estimate(self, theta: Array, data: None, u: Array) -> Array:
        """b/theta - 1/theta - 1 + D/n sum over the documents of n_kw / theta_kw - n_k / sum of theta_k."""
        total = jnp.sum(theta, axis=1, keepdims=True)
        documents, gibbs = jax.random.split(u)
        rows = jax.random.randint(documents, (self.batch_size,), 0, self.tokens.shape[0])
        tokens = jnp.asarray(self.tokens)[rows]
        there = (tokens >= 0)[..., None].astype(theta.dtype)
        words = jnp.maximum(tokens, 0)
        # (n, L, K): the probability of each word in each topic.
        shares = there * self._shares((theta / total).T[words], there, gibbs)
        nothing = jnp.zeros(theta.shape[::-1], theta.dtype)
        counts = nothing.at[words.reshape(-1)].add(shares.reshape(-1, theta.shape[0])).T
        scale = self.tokens.shape[0] / self.batch_size
        found = scale * (counts - theta / total * jnp.sum(counts, axis=1, keepdims=True))
        return (self.b - 1.0 + found) / theta - 1.0

    def _shares(self, topics: Array, there: Array, key: Array) -> Array:
        """Mean probabilities of the topics of every word, (n, L, K), over the last half of the sweeps."""
        kept, size = self.sweeps // 2, topics.shape[-1]
        triangle = jnp.triu(jnp.ones((size, size), topics.dtype))

        def sweep(i: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            weights, mean = carried
            to_weights, to_counts = jax.random.split(jax.random.fold_in(key, i))
            # As a product with a triangle: XLA's cumulated sum takes several times as long on a CPU.
            below = (weights[:, None, :] * topics) @ triangle
            total = below[..., -1:]
            factor = jnp.where(i >= self.sweeps - kept, 1.0 / kept, 0.0)
            mean = mean + factor * weights[:, None, :] / total
            # A word belongs to the first topic whose cumulated probability passes its uniform.
            passed = jax.random.uniform(to_counts, total.shape) * total < below
            counts = jnp.diff(jnp.sum(passed * there, axis=1), prepend=0.0)
            strength = jax.random.gamma(to_weights, self.alpha + counts)
            return strength / jnp.sum(strength, axis=-1, keepdims=True), mean

        start = jnp.full((topics.shape[0], size), 1.0 / size, topics.dtype)
        return topics * jax.lax.fori_loop(0, self.sweeps, sweep, (start, jnp.zeros_like(topics)))[1]

    def cost(self, num_data: int) -> int:
        """Documents of a step."""
        return self.batch_size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DocumentGradient) or (self.batch_size, self.sweeps) != (
            other.batch_size,
            other.sweeps,
        ):
            return False
        pairs = zip(jax.tree.leaves(self), jax.tree.leaves(other), strict=True)
        return all(np.array_equal(one, another) for one, another in pairs)

    def __hash__(self) -> int:
        return hash((type(self), self.batch_size, self.sweeps, np.shape(self.tokens)))
