"""Topics of documents: SGRLD beside online variational Bayes at equal seconds of the processor, by held-out perplexity.

`python -m benchmarks.topics [reuters|simulated] [--seconds 60] [--seeds 5]`. Reuters: 395 news items, 4258 words, as
the package `lda` brings them (extra `bench`). A fifth of the documents is held out; half of the words of each, drawn
at random, are shown to fit its weights, the other half is scored. Both get the same priors and the same scorer.
The steps of SGRLD were chosen on the simulated documents, out of three.
"""

import argparse
import time

import numpy as np
from numpy.random import default_rng

import langevin as lv

TOPICS, ALPHA, B = 20, 0.1, 0.1


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
            model.target, None, model.theta_0(seed), kernel=lv.SGRLD(), gradient=gradient, seed=seed, resume=ledger,
            schedule=lv.Power(0.5, m_0=500.0, alpha=0.6), num_steps=done, observables={"topics": model.normalised},
            progress=False,
        )  # fmt: skip
    rows = ledger.m_stop > done // 2
    found = ledger.values["topics"][0, rows].sum(axis=0) / ledger.sum_omega[rows].sum()
    found = found + ledger.columns["topics"].reference.ravel()
    return found.reshape(model.topics, -1), done


def variational(model, counts, seconds, seed):
    from sklearn.decomposition import LatentDirichletAllocation

    began, rounds = time.process_time(), 0
    fit = LatentDirichletAllocation(
        model.topics, doc_topic_prior=model.alpha, topic_word_prior=model.b, learning_method="online", batch_size=20,
        random_state=seed, total_samples=len(counts), n_jobs=1,
    )  # fmt: skip
    rng = default_rng(seed)
    while time.process_time() - began < seconds:
        fit.partial_fit(counts[rng.permutation(len(counts))])
        rounds += 1
    return fit.components_ / fit.components_.sum(axis=1, keepdims=True), rounds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", nargs="?", default="reuters", choices=("reuters", "simulated"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    counts, vocabulary, truth = {"reuters": reuters, "simulated": simulated}[options.corpus]()
    order = default_rng(1).permutation(len(counts))
    held, kept = counts[order[: len(counts) // 5]], counts[order[len(counts) // 5 :]]
    seen, hidden = halves(held, default_rng(2))
    model = lv.models.LDA(kept, topics=TOPICS, alpha=ALPHA, b=B)
    unigram = (kept.sum(axis=0) + B) / (kept.sum(axis=0) + B).sum()
    print(f"{options.corpus}: {counts.shape[0]} documents, {counts.shape[1]} words, {counts.sum()} in all; held out "
          f"{len(held)}; {options.seconds:g} s of the processor each")  # fmt: skip
    print(f"one topic only: {model.perplexity(unigram[None], seen, hidden):.1f}")
    if truth is not None:
        print(f"the true topics: {model.perplexity(truth, seen, hidden):.1f}")
    scores = []
    for seed in range(options.seeds):
        ours, steps = sgrld(model, options.seconds, seed)
        theirs, rounds = variational(model, kept, options.seconds, seed)
        scores.append([model.perplexity(topics, seen, hidden) for topics in (ours, theirs)])
        print(f"seed {seed}: SGRLD {scores[-1][0]:.1f} ({steps} steps of 20 documents), online VB {scores[-1][1]:.1f} "
              f"({rounds} rounds)", flush=True)  # fmt: skip
    scores = np.array(scores)
    bars = scores.std(axis=0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else np.full(2, np.nan)
    print(f"SGRLD {scores[:, 0].mean():.1f} +- {bars[0]:.1f}, online VB {scores[:, 1].mean():.1f} +- {bars[1]:.1f}")
    print("topics of the last run of SGRLD:")
    for topic in ours[np.argsort(-ours.max(axis=1))][:10]:
        print("  " + " ".join(vocabulary[word] for word in np.argsort(-topic)[:8]))


if __name__ == "__main__":
    main()
