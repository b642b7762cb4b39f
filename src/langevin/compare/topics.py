"""Topics of documents: SGRLD beside online variational Bayes after the same seconds, by held-out perplexity."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from time import monotonic, process_time
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

import langevin as lv
from langevin.compare.contestant import Contestant, Replicate
from langevin.compare.found import Snapshots
from langevin.compare.problem import Floats
from langevin.engine.run import Run
from langevin.engine.setup import prepare

NAME = "topics"
TITLE = "20 topics of 2000 documents, simulated: 500 words, 80 in a document, a fifth of the documents held out"
TOPICS, ALPHA, B = 20, 0.1, 0.1
# Learning decay, learning offset, documents a step: the best of a grid, for scikit-learn on other simulated documents
# (`python -m benchmarks.topics simulated --settings --seconds 5`), for gensim on the Reuters items.
SKLEARN, GENSIM = (0.9, 10.0, 20), (0.7, 10.0, 80)
# Documents of a step of SGRLD.
_BATCH, _ENDLESS = 20, 2**40


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents to learn from, and their model; of those held out the words that are shown and those that are scored.

    `truth`: the topics that documents were simulated from, None where nobody knows.
    """

    kept: Any
    model: lv.models.LDA
    seen: Any
    hidden: Any
    truth: Floats | None

    @classmethod
    def of(cls, counts: Any, truth: Floats | None = None) -> "Corpus":
        """A fifth of the documents is held out; half of the words of each, drawn at random, are shown."""
        order = default_rng(1).permutation(len(counts))
        held, kept = counts[order[: len(counts) // 5]], counts[order[len(counts) // 5 :]]
        seen = default_rng(2).binomial(held, 0.5)
        return cls(kept, lv.models.LDA(kept, topics=TOPICS, alpha=ALPHA, b=B), seen, held - seen, truth)

    @property
    def num_data(self) -> int:
        """Documents to learn from."""
        return len(self.kept)

    def perplexity(self, topics: Floats) -> float:
        """That of the words that are scored; less is better."""
        return self.model.perplexity(topics, self.seen, self.hidden)

    @property
    def bounds(self) -> dict[str, float]:
        """What nothing is learned by, and, where it is known, what nobody should beat by more than chance."""
        frequency = self.kept.sum(axis=0) + B
        found = {"one topic for all": self.perplexity((frequency / frequency.sum())[None])}
        return found if self.truth is None else found | {"the true topics": self.perplexity(self.truth)}


def simulated(rng: Generator, documents: int = 2000, words: int = 500, length: int = 80) -> tuple[Any, Floats]:
    """Counts (documents, words) from a known model, and its topics."""
    topics = rng.dirichlet(np.full(words, B), TOPICS)
    weights = rng.dirichlet(np.full(TOPICS, ALPHA), documents)
    return np.array([rng.multinomial(rng.poisson(length) + 1, w @ topics) for w in weights]), topics


@cache
def corpus() -> Corpus:
    """The documents of the table, on which nothing was chosen."""
    return Corpus.of(*simulated(default_rng(2)))


def sgrld(one: Corpus, seconds: float, seed: int) -> tuple[Floats, float]:
    """Topics averaged over the last half of the steps that the seconds allow, and documents seen."""
    began, model = process_time(), one.model
    run = Run(
        prepare(
            model.target, model.data, model.theta_0(seed), kernel=lv.SGRLD(),
            gradient=model.gradient(_BATCH, sweeps=10), schedule=lv.Power(0.5, m_0=500.0, alpha=0.6), subsample=None,
            coordinates=None, observables={"topics": model.normalised}, chains=1, seed=seed, anchor=None,
            weight_power=1.0, keep=0, layout=None, guard=1,
        )
    )  # fmt: skip
    while (left := began + seconds - process_time()) > 0.0:
        run.advance(_ENDLESS, deadline=monotonic() + left)
    ledger = run.ledger()
    rows = ledger.m_stop > run.m // 2
    found = ledger.values["topics"][0, rows].sum(axis=0) / ledger.sum_omega[rows].sum()
    reference: Any = ledger.columns["topics"].reference
    return (found + reference.ravel()).reshape(model.topics, -1), float(_BATCH * run.m)


def scikit_learn(
    one: Corpus, seconds: float, seed: int, setting: tuple[float, float, int] = SKLEARN
) -> tuple[Floats, float]:
    """Online variational Bayes, round after round over all documents, and documents seen."""
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    began, rounds, model = process_time(), 0, one.model
    decay, offset, size = setting
    fit = LatentDirichletAllocation(
        model.topics, doc_topic_prior=model.alpha, topic_word_prior=model.b, learning_method="online",
        learning_decay=decay, learning_offset=offset, batch_size=size, random_state=seed, total_samples=one.num_data,
        n_jobs=1,
    )  # fmt: skip
    rng, sparse = default_rng(seed), csr_matrix(one.kept)
    while process_time() - began < seconds:
        fit.partial_fit(sparse[rng.permutation(one.num_data)])
        rounds += 1
    return fit.components_ / fit.components_.sum(axis=1, keepdims=True), float(rounds * one.num_data)


def gensim(one: Corpus, seconds: float, seed: int, setting: tuple[float, float, int] = GENSIM) -> tuple[Floats, float]:
    """Online variational Bayes, round after round over all documents, and documents seen."""
    LdaModel = import_module("gensim.models").LdaModel
    began, rounds, model = process_time(), 0, one.model
    decay, offset, size = setting
    bags = [[(int(word), int(row[word])) for word in np.flatnonzero(row)] for row in one.kept]
    fit = LdaModel(
        id2word={word: str(word) for word in range(one.kept.shape[1])}, num_topics=model.topics, chunksize=size,
        alpha=[model.alpha] * model.topics, eta=model.b, decay=decay, offset=offset, eval_every=None, random_state=seed,
    )  # fmt: skip
    rng = default_rng(seed)
    while process_time() - began < seconds:
        fit.update([bags[row] for row in rng.permutation(len(bags))])
        rounds += 1
    return np.asarray(fit.get_topics(), np.float64), float(rounds * one.num_data)


def _replicates(method: Callable[..., tuple[Floats, float]], one: Any, seconds: float) -> Replicate:
    """See `Contestant.build`: perplexities of the topics that were found, scored outside of the time."""

    def replicate(seed: int, seconds: float, visits: float) -> Snapshots:
        began = process_time()
        topics, documents = method(one, seconds, seed)
        spent = process_time() - began
        return {"seconds": {"perplexity": one.perplexity(topics), "seconds": spent, "visits": documents}}

    return replicate


_ALL = (
    Contestant(
        "sgrld", "langevin", "20 documents a step, 10 sweeps, average of the last half", partial(_replicates, sgrld)
    ),
    Contestant(
        "sklearn-lda",
        "scikit-learn",
        "online variational Bayes, decay {}, offset {:g}, {} documents a step".format(*SKLEARN),
        partial(_replicates, scikit_learn),
        ("sklearn",),
    ),
    Contestant(
        "gensim-lda",
        "gensim",
        "online variational Bayes, decay {}, offset {:g}, {} documents a step".format(*GENSIM),
        partial(_replicates, gensim),
        ("gensim",),
        "pip install gensim==4.4.0",
    ),
)
METHODS = {one.name: one for one in _ALL}
