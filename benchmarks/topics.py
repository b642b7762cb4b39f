"""Topics of documents: SGRLD beside online variational Bayes at equal seconds of the processor, by held-out perplexity.

`python -m benchmarks.topics [reuters|simulated] [--seconds 60] [--seeds 5]`. Reuters: 395 news items, 4258 words, as
the package `lda` brings them (extra `bench`). A fifth of the documents is held out; half of the words of each, drawn
at random, are shown to fit its weights, the other half is scored. All get the same priors and the same scorer.
Online variational Bayes is scikit-learn's, and gensim's where that is installed (`pip install gensim==4.4.0`, in an
environment of its own). The steps of SGRLD were chosen on the simulated documents, out of three; the settings of the
others on Reuters, without the documents that are held out, by `python -m benchmarks.topics settings --seconds 10`.
"""

import argparse
import time
from importlib.util import find_spec
from itertools import product

import numpy as np
from numpy.random import default_rng

import langevin as lv

TOPICS, ALPHA, B = 20, 0.1, 0.1
# (learning decay, learning offset, documents a step): what `settings` found best.
SKLEARN, GENSIM = (0.51, 1.0, 80), (0.7, 10.0, 80)


def reuters():
    import lda.datasets

    return np.asarray(lda.datasets.load_reuters(), np.int64), list(lda.datasets.load_reuters_vocab()), None


def simulated(documents=2000, words=500, length=80):
    """Documents of a known model, and its topics."""
    rng = default_rng(0)
    topics = rng.dirichlet(np.full(words, B), TOPICS)
    weights = rng.dirichlet(np.full(TOPICS, ALPHA), documents)
    counts = np.array([rng.multinomial(rng.poisson(length) + 1, w @ topics) for w in weights])
    return counts, [f"w{k}" for k in range(words)], topics


def halves(counts, rng):
    seen = rng.binomial(counts, 0.5)
    return seen, counts - seen


def sgrld(model, seconds, seed, steps=64):
    """Topics averaged over the last half of the steps that `seconds` of the processor allow; compiling counts."""
    began, ledger, done = time.process_time(), None, 0
    gradient = model.gradient(batch_size=20, sweeps=10)
    while time.process_time() - began < seconds:
        done += steps
        ledger = lv.run(
            model.target, model.data, model.theta_0(seed), kernel=lv.SGRLD(), gradient=gradient, seed=seed,
            schedule=lv.Power(0.5, m_0=500.0, alpha=0.6), num_steps=done, observables={"topics": model.normalised},
            progress=False, resume=ledger,
        )  # fmt: skip
    rows = ledger.m_stop > done // 2
    found = ledger.values["topics"][0, rows].sum(axis=0) / ledger.sum_omega[rows].sum()
    found = found + ledger.columns["topics"].reference.ravel()
    return found.reshape(model.topics, -1), done


def scikit_learn(model, counts, seconds, seed, setting=SKLEARN):
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    began, rounds = time.process_time(), 0
    decay, offset, size = setting
    fit = LatentDirichletAllocation(
        model.topics, doc_topic_prior=model.alpha, topic_word_prior=model.b, learning_method="online",
        learning_decay=decay, learning_offset=offset, batch_size=size, random_state=seed, total_samples=len(counts),
        n_jobs=1,
    )  # fmt: skip
    rng, sparse = default_rng(seed), csr_matrix(counts)
    while time.process_time() - began < seconds:
        fit.partial_fit(sparse[rng.permutation(len(counts))])
        rounds += 1
    return fit.components_ / fit.components_.sum(axis=1, keepdims=True), rounds


def gensim(model, counts, seconds, seed, setting=GENSIM):
    from gensim.models import LdaModel

    began, rounds = time.process_time(), 0
    decay, offset, size = setting
    bags = [[(int(word), int(row[word])) for word in np.flatnonzero(row)] for row in counts]
    fit = LdaModel(
        id2word={word: str(word) for word in range(counts.shape[1])}, num_topics=model.topics, chunksize=size,
        alpha=[model.alpha] * model.topics, eta=model.b, decay=decay, offset=offset, eval_every=None, random_state=seed,
    )  # fmt: skip
    rng = default_rng(seed)
    while time.process_time() - began < seconds:
        fit.update([bags[row] for row in rng.permutation(len(bags))])
        rounds += 1
    return np.asarray(fit.get_topics(), np.float64), rounds


METHODS = {"SGRLD": lambda model, counts, *rest: sgrld(model, *rest), "scikit-learn": scikit_learn}
if find_spec("gensim") is not None:
    METHODS["gensim"] = gensim


def settings(seconds):
    """Perplexity by settings of online variational Bayes, a fifth of the documents that are not held out left out."""
    kept, model, seen, hidden = split(split(reuters()[0])[0])
    for method in (name for name in METHODS if name != "SGRLD"):
        for setting in product((0.51, 0.7, 0.9), (1.0, 10.0, 64.0), (20, 80)):
            topics, rounds = METHODS[method](model, kept, seconds, 0, setting)
            print(f"{method}: decay {setting[0]}, offset {setting[1]:g}, {setting[2]} documents a step: "
                  f"{model.perplexity(topics, seen, hidden):.1f} ({rounds} rounds)", flush=True)  # fmt: skip


def split(counts):
    """Documents to learn from and their model; words of the others that are shown, and those that are scored."""
    order = default_rng(1).permutation(len(counts))
    held, kept = counts[order[: len(counts) // 5]], counts[order[len(counts) // 5 :]]
    return kept, lv.models.LDA(kept, topics=TOPICS, alpha=ALPHA, b=B), *halves(held, default_rng(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", nargs="?", default="reuters", choices=("reuters", "simulated", "settings"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.corpus == "settings":
        settings(options.seconds)
        return
    counts, vocabulary, truth = {"reuters": reuters, "simulated": simulated}[options.corpus]()
    kept, model, seen, hidden = split(counts)
    unigram = (kept.sum(axis=0) + B) / (kept.sum(axis=0) + B).sum()
    print(f"{options.corpus}: {counts.shape[0]} documents, {counts.shape[1]} words, {counts.sum()} in all; held out "
          f"{len(seen)}; {options.seconds:g} s of the processor each")  # fmt: skip
    print(f"one topic only: {model.perplexity(unigram[None], seen, hidden):.1f}")
    if truth is not None:
        print(f"the true topics: {model.perplexity(truth, seen, hidden):.1f}")
    scores = []
    for seed in range(options.seeds):
        found = {name: method(model, kept, options.seconds, seed) for name, method in METHODS.items()}
        scores.append([model.perplexity(topics, seen, hidden) for topics, _ in found.values()])
        each = [f"{name} {score:.1f} ({found[name][1]})" for name, score in zip(METHODS, scores[-1], strict=True)]
        print(f"seed {seed}: {', '.join(each)}", flush=True)
    print("in brackets: steps of 20 documents for SGRLD, rounds over all documents for the others")
    scores = np.array(scores)
    for name, values in zip(METHODS, scores.T, strict=True):
        bar = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        print(f"{name}: {values.mean():.1f} +- {bar:.1f}")
    ours = found["SGRLD"][0]
    print("topics of the last run of SGRLD:")
    for topic in ours[np.argsort(-ours.max(axis=1))][:10]:
        print("  " + " ".join(vocabulary[word] for word in np.argsort(-topic)[:8]))


if __name__ == "__main__":
    main()
