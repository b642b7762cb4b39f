"""Latent Dirichlet allocation: topics of documents, with gradients by Gibbs sampling inside minibatches."""

from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from langevin.data.source import ArraySource, DataSource, as_source
from langevin.engine.checks import require, whole_number
from langevin.target import Target

Array = Any
# Documents that are counted at once.
_CHUNK = 8192


def _tokens(counts: Any) -> tuple[NDArray[np.int32], int]:
    """The words of each document one after the other, (D, length of the longest), -1 after the last; and V."""
    if hasattr(counts, "tocsr"):
        counts = counts.tocsr(copy=True)
        counts.sum_duplicates()
        (size, words), (row, word), many = counts.shape, counts.tocoo().coords, counts.data
    else:
        counts = np.asarray(counts)
        if counts.ndim != 2 or not counts.size or counts.dtype.kind not in "biuf":
            raise ValueError(
                f"documents must be how often each word occurs in each document, numbers (documents, words), got "
                f"{counts.dtype} of shape {counts.shape}. Try sklearn's CountVectorizer, or a file of the words."
            )
        (size, words), (row, word) = counts.shape, np.nonzero(counts)
        many = counts[row, word]
    wrong = ~(np.isfinite(many) & (many >= 0) & (many == np.floor(many)))
    if np.any(wrong):
        at = int(np.argmax(wrong))
        raise ValueError(
            f"documents must hold whole numbers of at least 0, how often each word occurs, got {many[at]} in row "
            f"{row[at]:,} (counted from 0). Count the words anew."
        )
    many = many.astype(np.int64)
    lengths = np.bincount(row, many, size).astype(np.int64)
    tokens = np.full((size, lengths.max()), -1, np.int32)
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = np.repeat(word, many)
    return tokens, words


def _dense(part: Any) -> NDArray[np.float64]:
    return np.asarray(part.toarray() if hasattr(part, "toarray") else part, np.float64)


def _frequency(source: DataSource, words: int | None) -> NDArray[np.int64]:
    """How often each word occurs in all documents, some of them at a time."""
    leaves = jax.tree.leaves(source.arrays)
    if len(leaves) != 1 or leaves[0].ndim != 2 or leaves[0].dtype.kind not in "iu":
        found = [f"{leaf.dtype} {leaf.shape}" for leaf in leaves]
        raise ValueError(
            f"documents must be one array of whole numbers, (documents, length of the longest), got {found}. Write the "
            f"words of each document as numbers from 0, and -1 after the last."
        )
    total = np.zeros(0 if words is None else words, np.int64)
    for start in range(0, source.num_data, _CHUNK):
        (rows,) = jax.tree.leaves(source.slice(start, start + _CHUNK))
        there = rows >= 0
        if not there.any(axis=1).all():
            empty = start + int(np.argmin(there.any(axis=1)))
            raise ValueError(f"documents must have words, got none in row {empty:,} (counted from 0). Leave it out.")
        counts = np.bincount(rows[there], minlength=len(total))
        if words is not None and len(counts) > words:
            raise ValueError(
                f"words must be more than the largest number of a word, got {words} and a word {len(counts) - 1}. Try "
                f"words=None."
            )
        total = counts + np.pad(total, (0, len(counts) - len(total)))
    return total


@dataclass(frozen=True, eq=False)
class LDA:
    """Latent Dirichlet allocation with collapsed weights, in expanded-mean coordinates.

        theta_kw ~ Gamma(b, 1),  topic_k = theta_k / sum of theta_k,  weights_d ~ Dirichlet(alpha),
        words of d ~ weights_d topics,    grad log p(d | theta) = E[n_dkw / theta_kw - n_dk / sum of theta_k | d].

    `documents`: an array (D, V), or a sparse one of SciPy, of how often each of V words occurs in each of D documents;
    or a path or an `lv.DataSource` of whole numbers (D, L), the words of each document as numbers from 0, and -1 after
    the last. Files (`.npy`, imported folders) above 32 MB are mapped, not loaded: memory does not grow with D. `words`
    is V; if None, the width of the array, or one more than the largest number in the file.

    `gradient` estimates the expectation over the assignments of words to topics by Gibbs sampling within `batch_size`
    documents drawn anew in every step: `sweeps` rounds of weights given counts and counts given weights, the last half
    of them averaged, words' shares exactly rather than drawn. Unbiased as sweeps grow. Pass it to `lv.run` with
    `kernel=lv.SGRLD()` and `model.data`. Cost of a gradient: `batch_size` documents, and that is what the ledger
    counts; of the model: one pass over the documents.

    Blei, Ng and Jordan, *Latent Dirichlet allocation* (2003); Patterson and Teh, *Stochastic gradient Riemannian
    Langevin dynamics on the probability simplex* (2013).

    Example:
        >>> import langevin as lv, numpy as np
        >>> model = lv.models.LDA(np.random.default_rng(0).poisson(0.5, (50, 30)), topics=3)
        >>> ledger = lv.run(model.target, model.data, model.theta_0(), kernel=lv.SGRLD(), gradient=model.gradient(5),
        ...                 schedule=lv.Constant(0.01), num_steps=50, observables={"topics": model.normalised})
        >>> lv.estimate(ledger)["topics"].value.sum(axis=1).round(3).tolist()
        [1.0, 1.0, 1.0]
    """

    documents: Any
    topics: int
    alpha: float = 0.1
    b: float = 0.1
    words: int | None = None
    data: DataSource = field(init=False, repr=False)
    frequency: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", whole_number("topics", self.topics, 2, try_this=20))
        for name in ("alpha", "b"):
            value = getattr(self, name)
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            require(number and 0.0 < value < np.inf, name, value, "a positive number", "0.1")
        words = self.words
        good = words is None or (isinstance(words, int | np.integer) and not isinstance(words, bool) and words >= 1)
        require(good, "words", words, "the number of different words, an integer, or None", "None")
        # Arrays first, as in `as_source`.
        if isinstance(self.documents, (str, PathLike, ArraySource, DataSource)):
            source = as_source(self.documents)
        else:
            tokens, width = _tokens(self.documents)
            source, words = ArraySource.of(tokens), width if words is None else words
        object.__setattr__(self, "data", source)
        object.__setattr__(self, "frequency", _frequency(source, words))

    @property
    def target(self) -> Target:
        """The prior alone: what the documents say comes with the gradient."""
        return Target(_GammaPrior(self.b))

    def theta_0(self, seed: int = 0) -> NDArray[np.float32]:
        """A start: the words' frequencies, each topic shaken by itself; (topics, words)."""
        shaken = np.random.default_rng(seed).gamma(1.0, 1.0, (self.topics, len(self.frequency)))
        frequency = (self.frequency + 1.0) / self.topics
        return (frequency * shaken + 0.01).astype(np.float32)

    @staticmethod
    def normalised(theta: Array) -> Array:
        """Topics: the distribution of words in each, for theta (topics, words)."""
        return theta / jnp.sum(theta, axis=-1, keepdims=True)

    def gradient(self, batch_size: int, sweeps: int = 20) -> "DocumentGradient":
        """The estimate of the gradient from `batch_size` documents a step."""
        batch_size = whole_number("batch_size", batch_size, 1, try_this=20)
        sweeps = whole_number("sweeps", sweeps, 2, try_this=20)
        return DocumentGradient(float(self.alpha), float(self.b), batch_size, sweeps)

    def perplexity(self, topics: ArrayLike, seen: ArrayLike, hidden: ArrayLike, rounds: int = 100) -> float:
        """exp of minus the mean log probability of the `hidden` words of documents whose `seen` words are known.

        Weights of a document are fitted to its seen words (`rounds` of the mean-field update); both (documents, words),
        arrays or sparse ones, for `topics` (topics, words). Cost: `rounds` times documents times topics times words.
        """
        from scipy.special import digamma

        rounds = whole_number("rounds", rounds, 1, try_this=100)
        topics, seen, hidden = (_dense(part) for part in (topics, seen, hidden))
        if not topics.ndim == seen.ndim == 2 or seen.shape != hidden.shape or seen.shape[1:] != topics.shape[1:]:
            raise ValueError(
                f"topics, seen and hidden must be (topics, words), (documents, words) and the same, got shapes "
                f"{topics.shape}, {seen.shape} and {hidden.shape}. Give documents in the words of the topics."
            )
        if not np.all(topics >= 0.0) or not np.allclose(topics.sum(axis=1), 1.0, rtol=1e-3):
            raise ValueError(
                f"topics must be distributions, rows that add up to 1, got sums from {topics.sum(axis=1).min():.3g} to "
                f"{topics.sum(axis=1).max():.3g}. Try model.normalised(theta)."
            )
        if not np.all(seen >= 0.0) or not np.all(hidden >= 0.0) or not hidden.sum() > 0.0:
            raise ValueError(
                f"seen and hidden must be counts of at least 0, and hidden have words to be scored by, got "
                f"{seen.sum():g} and {hidden.sum():g} words in all. Hold some words of the documents back."
            )
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
@dataclass(frozen=True)
class DocumentGradient:
    """The gradient of `LDA` from a few documents: a `CustomGradient`, random by its documents and Gibbs sampling."""

    alpha: Array
    b: Array
    batch_size: int = field(metadata={"static": True})
    sweeps: int = field(metadata={"static": True})

    def draw(self, key: Array) -> Array:
        """The key: documents and sweeps take what they need from it."""
        return key

    def estimate(self, theta: Array, data: Array, u: Array) -> Array:
        """b/theta - 1/theta - 1 + D/n sum over the documents of n_kw / theta_kw - n_k / sum of theta_k."""
        total = jnp.sum(theta, axis=1, keepdims=True)
        documents, gibbs = jax.random.split(u)
        (tokens,) = jax.tree.leaves(data)
        num_data = tokens.shape[0]
        rows = jax.random.randint(documents, (self.batch_size,), 0, num_data)
        tokens = tokens.at[rows].get(mode="promise_in_bounds")
        there = (tokens >= 0)[..., None].astype(theta.dtype)
        words = jnp.maximum(tokens, 0)
        # (n, L, K): the probability of each word in each topic.
        shares = there * self._shares((theta / total).T[words], there, gibbs)
        nothing = jnp.zeros(theta.shape[::-1], theta.dtype)
        counts = nothing.at[words.reshape(-1)].add(shares.reshape(-1, theta.shape[0])).T
        scale = num_data / self.batch_size
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
