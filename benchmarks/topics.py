"""Topics of documents: SGRLD beside online variational Bayes at equal seconds of the processor, by held-out perplexity.

`python -m benchmarks.topics [reuters|simulated] [--seconds 60] [--seeds 5]`. Reuters: 395 news items, 4258 words, as
the package `lda` brings them (extra `bench`). Documents, methods and the scorer are those of `langevin compare topics`
(`langevin.compare.topics`); gensim takes part where it is installed (`pip install gensim==4.4.0`). `--settings` tries
settings of online variational Bayes without the documents that are held out. The steps of SGRLD were chosen on the
simulated documents, out of three. Compiling counts here.
"""

import argparse
from itertools import product

import numpy as np
from numpy.random import default_rng

from langevin.compare.topics import METHODS, Corpus, gensim, scikit_learn, sgrld, simulated

BY_NAME = {"sgrld": sgrld, "sklearn-lda": scikit_learn, "gensim-lda": gensim}
# (learning decay, learning offset, documents a step): what `--settings` found best on Reuters.
REUTERS = {"sklearn-lda": (0.51, 1.0, 80)}


def reuters():
    import lda.datasets

    return Corpus.of(np.asarray(lda.datasets.load_reuters(), np.int64)), list(lda.datasets.load_reuters_vocab())


def of_known_topics():
    counts, topics = simulated(default_rng(0))
    return Corpus.of(counts, topics), [f"w{k}" for k in range(counts.shape[1])]


def settings(names, one, seconds):
    """Perplexity by settings of online variational Bayes, a fifth of the documents that are not held out left out."""
    inner = Corpus.of(one.kept)
    for name in (name for name in names if name != "sgrld"):
        for setting in product((0.51, 0.7, 0.9), (1.0, 10.0, 64.0), (20, 80)):
            topics, seen = BY_NAME[name](inner, seconds, 0, setting)
            print(f"{name}: decay {setting[0]}, offset {setting[1]:g}, {setting[2]} documents a step: "
                  f"{inner.perplexity(topics):.1f} ({seen / inner.num_data:.0f} rounds)", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", nargs="?", default="reuters", choices=("reuters", "simulated"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--settings", action="store_true")
    options = parser.parse_args()
    one, vocabulary = {"reuters": reuters, "simulated": of_known_topics}[options.corpus]()
    names = [name for name, method in METHODS.items() if not method.missing]
    if options.settings:
        settings(names, one, options.seconds)
        return
    print(f"{options.corpus}: {one.num_data} documents to learn from, {one.kept.shape[1]} words, {one.kept.sum()} in "
          f"all; held out {len(one.seen)}; {options.seconds:g} s of the processor each")  # fmt: skip
    for name, bound in one.bounds.items():
        print(f"{name}: {bound:.1f}")
    chosen = REUTERS if options.corpus == "reuters" else {}
    scores = []
    for seed in range(options.seeds):
        found = {}
        for name in names:
            more = [chosen[name]] if name in chosen else []
            found[name] = BY_NAME[name](one, options.seconds, seed, *more)
        scores.append([one.perplexity(topics) for topics, _ in found.values()])
        each = [
            f"{name} {score:.1f} ({found[name][1] / one.num_data:.0f} rounds)"
            for name, score in zip(names, scores[-1], strict=True)
        ]
        print(f"seed {seed}: {', '.join(each)}", flush=True)
    scores = np.array(scores)
    for name, values in zip(names, scores.T, strict=True):
        bar = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        print(f"{name}: {values.mean():.1f} +- {bar:.1f}")
    ours = found["sgrld"][0]
    print("topics of the last run of SGRLD:")
    for topic in ours[np.argsort(-ours.max(axis=1))][:10]:
        print("  " + " ".join(vocabulary[word] for word in np.argsort(-topic)[:8]))


if __name__ == "__main__":
    main()
