"""SGRLD and the topic model: laws that are known, a gradient against enumeration, topics that are found again.

Scores are over independent chains; limits for 1e-9 a score, and a factor of 4 allowed for skewness.
"""

import subprocess
import sys
from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln

import langevin as lv
from langevin.data import files
from langevin.data.source import ArraySource
from langevin.gradients import CustomGradient
from langevin.kernels.sgld import SGLDState

CHAINS, DELTA = 256, 0.4
# So large that chains are never reflected: six sds away from 0.
B = np.array([40.0, 60.0], np.float32)
LIMIT = float(stats.t.isf(0.5e-9, CHAINS - 1))


def gamma_scores(kernel):
    """Scores of mean and mean square of two Gamma variables, and of the mean of the first one's share."""
    ledger = lv.run(
        lv.Target(lambda t: jnp.sum((B - 1) * jnp.log(t) - t)), None, B, kernel=kernel, schedule=lv.Constant(DELTA),
        num_steps=2048, chains=CHAINS, progress=False,
        observables={"all": lambda t: jnp.concatenate([t - B, (t - B) ** 2])},
    )  # fmt: skip
    rows = ledger.m_stop > 256
    found = ledger.values["all"][:, rows].sum(axis=1) / ledger.sum_omega[rows].sum() + ledger.columns["all"].reference
    truth = [0, 0, *(B / (1 - float(np.float32(DELTA)) / 4))]
    return float(np.max(np.abs(found.mean(axis=0) - truth) / (found.std(axis=0, ddof=1) / np.sqrt(CHAINS))))


def test_sgrld_has_its_law_on_gamma_variables():
    assert gamma_scores(lv.SGRLD()) < LIMIT


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WithoutDivergence(lv.SGRLD):
    """The 1 forgotten."""

    def step(self, state, grad, eta, delta):
        return super().step(state, grad - 1 / state.theta, eta, delta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FlatNoise(lv.SGRLD):
    """Noise that does not grow with theta."""

    def step(self, state, grad, eta, delta):
        return super().step(state, grad, eta * jnp.sqrt(50.0 / state.theta), delta)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [WithoutDivergence(), FlatNoise()], ids=repr)
def test_control_sabotaged_sgrld_is_refused(kernel):
    assert gamma_scores(kernel) > LIMIT + 4


def test_a_step_reflects_and_never_reaches_zero():
    state = SGLDState(jnp.array([0.01, 1e-30]))
    moved = lv.SGRLD().step(state, jnp.array([0.0, -1e30]), jnp.array([-5.0, 0.0]), jnp.float32(0.1))
    np.testing.assert_allclose(moved.theta[0], abs(0.01 + 0.05 - 5 * np.sqrt(0.001)), rtol=1e-5)
    assert moved.theta[1] > 0 and not lv.SGRLD().has_theory


@pytest.mark.parametrize("kernel", [lv.SGRLD(), lv.Coarse(lv.SGRLD())], ids=repr)
def test_other_coordinates_and_starts_are_refused(kernel):
    """In units of [[5, -4], [-4, 10]] means of 5 and 10 came out as 7.5 and 7.6."""
    b = np.array([5.0, 10.0], np.float32)
    parts = {"kernel": kernel, "schedule": lv.Constant(0.1), "num_steps": 8, "progress": False}
    target = lv.Target(lambda t: jnp.sum((b - 1) * jnp.log(t) - t))
    anchor = lv.laplace(target, None, b)
    for coordinates in (lv.Preconditioned.by([[5.0, -4.0], [-4.0, 10.0]]), lv.Whitened.by(anchor)):
        with pytest.raises(ValueError, match=r"coordinates must be None for .*SGRLD\(\).*, got"):
            lv.run(target, None, b, coordinates=coordinates, anchor=anchor, **parts)
    assert lv.run(target, None, b, coordinates=lv.Coordinates(), **parts).num_steps == 8
    with pytest.raises(ValueError, match=r"theta_0 must be positive for .* got -2 in it"):
        lv.run(lv.Target(lambda t: -jnp.sum(t)), None, np.array([1.0, -2.0]), **parts)


# --- the model ---

COUNTS = np.array([[2, 1, 0], [0, 1, 2], [1, 0, 0]])
MODEL = lv.models.LDA(COUNTS, topics=2, alpha=0.5, b=0.7)
THETA = np.array([[1.0, 0.6, 0.3], [0.2, 0.5, 0.9]], np.float32)
TOPICS = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])


def exact_gradient():
    """By enumeration of all assignments of words to topics, weights of documents integrated out."""

    def log_likelihood(theta):
        topics, total = theta / jnp.sum(theta, axis=1, keepdims=True), 0.0
        for document in COUNTS:
            words = np.repeat(np.arange(3), document)
            each = []
            for assignment in product(range(2), repeat=len(words)):
                n = np.bincount(assignment, minlength=2)
                prior = np.sum(gammaln(n + 0.5) - gammaln(0.5)) - gammaln(len(words) + 1.0)
                each.append(prior + jnp.sum(jnp.log(topics[np.array(assignment), words])))
            total = total + jax.nn.logsumexp(jnp.stack(each))
        return total + jnp.sum((0.7 - 1.0) * jnp.log(theta) - theta)

    return np.asarray(jax.grad(log_likelihood)(jnp.asarray(THETA)))


def estimates(gradient, count):
    keys, documents = jax.random.split(jax.random.key(4), count), jnp.asarray(MODEL.data.arrays)
    return np.asarray(jax.jit(jax.vmap(lambda key: gradient.estimate(jnp.asarray(THETA), documents, key)))(keys))


def surprise(found):
    scores = (found.mean(axis=0) - exact_gradient()) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))
    return float(np.max(np.abs(scores)))


@pytest.mark.slow
def test_the_gradient_of_a_few_documents_is_that_of_all_assignments():
    # Estimates from two of three documents; documents of three words forget their start within a few sweeps.
    assert surprise(estimates(MODEL.gradient(2, sweeps=40), 8000)) < stats.norm.isf(0.5e-9 / THETA.size)


@pytest.mark.slow
def test_control_one_sweep_from_uniform_weights_is_not_enough():
    assert surprise(estimates(MODEL.gradient(2, sweeps=2), 20_000)) > stats.norm.isf(0.5e-9 / THETA.size) + 4


def test_the_gradient_is_a_custom_gradient_and_a_value():
    gradient = MODEL.gradient(2)
    assert isinstance(gradient, CustomGradient) and gradient.cost(0) == 2
    leaves, treedef = jax.tree.flatten(gradient)
    assert treedef.unflatten(leaves) == gradient == MODEL.gradient(2) != MODEL.gradient(1)


def run(model, **more):
    asked = {"schedule": lv.Constant(0.01), "num_steps": 40, "keep": 4, "progress": False, **more}
    return lv.run(
        model.target, model.data, model.theta_0(), kernel=lv.SGRLD(), gradient=model.gradient(2, sweeps=4), **asked
    )


def test_documents_in_files_give_the_same_chain_to_the_bit(tmp_path, monkeypatch):
    tokens = np.array([[0, 0, 1], [1, 2, 2], [0, -1, -1]])
    # Mapped, as larger files are: whole numbers of other widths, and a folder in which they are a column.
    monkeypatch.setattr(files, "FROM_BYTES", 0)
    np.save(tmp_path / "short.npy", tokens.astype(np.int16))
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "words.npy", tokens.astype(np.int32))
    expected = run(MODEL)
    for documents in (tmp_path / "short.npy", str(tmp_path / "folder"), lv.DataSource.of(tokens.astype(np.int32))):
        model = lv.models.LDA(documents, topics=2, alpha=0.5, b=0.7)
        assert isinstance(documents, ArraySource) or model.data.files
        found = run(model)
        assert np.array_equal(found.values["theta"], expected.values["theta"]) and found.cost == expected.cost == 80
        # What is read is what the ledger remembers: a run goes on with these documents only.
        first = run(model, num_steps=16)
        assert np.array_equal(run(model, resume=first).values["theta"], expected.values["theta"])
    with pytest.raises(ValueError, match="the data are"):
        run(lv.models.LDA(COUNTS[::-1], topics=2, alpha=0.5, b=0.7), resume=first)


def test_documents_that_change_under_a_run_end_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FROM_BYTES", 0)
    np.save(tmp_path / "words.npy", np.array([[0, 1], [1, -1]], np.int32))
    model = lv.models.LDA(tmp_path / "words.npy", topics=2)
    np.save(tmp_path / "words.npy", np.array([[0, 1], [0, 0], [1, 1]], np.int32))
    with pytest.raises(lv.DataChanged):
        run(model)


def test_only_a_gradient_of_ones_own_takes_data_without_a_likelihood():
    for kernel, gradient in ((lv.SGLD(), lv.Minibatch()), (lv.MALA(), MODEL.gradient(2))):
        with pytest.raises(ValueError, match="data must be None for a target without log_likelihood"):
            lv.run(MODEL.target, MODEL.data, THETA, kernel=kernel, gradient=gradient, schedule=lv.Constant(0.1),
                   num_steps=4)  # fmt: skip


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_documents():
    command = [sys.executable, "-m", "benchmarks.topics_memory", "--documents", "100000", "500000", "--steps", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "more memory" in done.stdout, done.stdout + done.stderr
    # The control holds the documents in memory.
    done = subprocess.run([*command, "--loaded"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "more memory" in done.stdout, done.stdout + done.stderr


def test_perplexity_knows_good_topics_from_none():
    topics = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    model = lv.models.LDA(np.ones((2, 4), int), topics=2, alpha=0.01)
    seen, hidden = np.array([[3, 3, 0, 0], [0, 0, 2, 4]]), np.array([[1, 2, 0, 0], [0, 0, 3, 1]])
    assert 2.0 <= model.perplexity(topics, seen, hidden) < 2.05
    assert np.isclose(model.perplexity(np.full((2, 4), 0.25), seen, hidden), 4.0)


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "dok_array", "bool"])
def test_sparse_counts_are_the_same_documents(kind):
    model = lv.models.LDA(COUNTS, topics=2)
    if kind == "bool":
        found, expected = lv.models.LDA(COUNTS > 0, topics=2), lv.models.LDA(np.minimum(COUNTS, 1), topics=2)
    else:
        found, expected = lv.models.LDA(getattr(sparse, kind)(COUNTS), topics=2), model
    assert np.array_equal(found.data.arrays, expected.data.arrays)
    assert np.array_equal(found.frequency, expected.frequency)


def test_sparse_counts_may_be_said_twice_and_are_left_as_they_are():
    twice = sparse.csr_array(([1, 1, 1, 2], [1, 1, 2, 0], [0, 2, 4]), shape=(2, 4))
    indices = twice.indices.copy()
    assert np.array_equal(lv.models.LDA(twice, topics=2).data.arrays, [[1, 1, -1], [0, 0, 2]])
    assert np.array_equal(twice.indices, indices)
    score = MODEL.perplexity(TOPICS, COUNTS, COUNTS)
    assert score == MODEL.perplexity(TOPICS, sparse.csr_array(COUNTS), sparse.csr_array(COUNTS))


def test_whole_numbers_of_numpy_are_whole_numbers():
    model = lv.models.LDA(COUNTS, topics=np.int64(2), alpha=np.float32(0.5), words=np.int32(3))
    assert type(model.topics) is int and model.gradient(np.int64(2), sweeps=np.int8(4)).cost(3) == 2


@pytest.mark.slow
def test_topics_of_simulated_documents_are_found_again():
    # One seed of chain and data: no rate. Means of topics from random starts score far worse.
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(30, 0.1), 3)
    counts = np.array([rng.multinomial(60, w @ topics) for w in rng.dirichlet(np.full(3, 0.2), 300)])
    model = lv.models.LDA(counts[:250], topics=3)
    ledger = lv.run(
        model.target, model.data, model.theta_0(1), kernel=lv.SGRLD(), gradient=model.gradient(10, sweeps=10),
        schedule=lv.Constant(0.02), num_steps=1500, observables={"topics": model.normalised}, progress=False,
    )  # fmt: skip
    rows = ledger.m_stop > 500
    found = ledger.values["topics"][0, rows].sum(axis=0) / ledger.sum_omega[rows].sum()
    found = (found + ledger.columns["topics"].reference.ravel()).reshape(3, 30)
    seen = rng.binomial(counts[250:], 0.5)
    score = [
        model.perplexity(t, seen, counts[250:] - seen) for t in (found, topics, model.normalised(model.theta_0(1)))
    ]
    assert score[0] < 1.03 * score[1] < score[2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lv.models.LDA([[1, 2], [0, 0]], topics=2), "documents must have words, got none in row 1"),
        (lambda: lv.models.LDA([[0, 0]], topics=2), "documents must have words, got none in row 0"),
        (lambda: lv.models.LDA([[1, 0], [0, 1.5]], topics=2), "whole numbers of at least 0, .* got 1.5 in row 1"),
        (lambda: lv.models.LDA([[1, np.nan]], topics=2), "whole numbers of at least 0, .* got nan in row 0"),
        (lambda: lv.models.LDA(sparse.csr_array([[1, 0], [0, -1]]), topics=2), "got -1 in row 1"),
        (lambda: lv.models.LDA([["a", "b"]], topics=2), "numbers \\(documents, words\\), got <U1"),
        (lambda: lv.models.LDA([1, 2], topics=2), "of shape \\(2,\\)"),
        (lambda: lv.models.LDA([[1, 2]], topics=1), "topics must be an integer of at least 2, got 1"),
        (lambda: lv.models.LDA([[1, 2]], topics=2.0), "topics must be an integer of at least 2, got 2.0"),
        (lambda: lv.models.LDA([[1, 2]], topics=2, alpha=0.0), "alpha must be a positive number, got 0.0"),
        (lambda: lv.models.LDA([[1, 2]], topics=2, alpha="x"), "alpha must be a positive number, got 'x'"),
        (lambda: lv.models.LDA([[1, 2]], topics=2, b=np.nan), "b must be a positive number, got nan"),
        (lambda: lv.models.LDA(lv.DataSource.of(np.array([[0], [-1]])), topics=2), "got none in row 1"),
        (lambda: lv.models.LDA(lv.DataSource.of(np.ones((2, 2))), topics=2), "one array of whole numbers"),
        (lambda: lv.models.LDA(lv.DataSource.of(np.array([[0, 5]])), topics=2, words=5), "got 5 and a word 5"),
        (lambda: lv.models.LDA([[1, 2]], topics=2, words=0), "words must be the number of different words"),
        (lambda: MODEL.gradient(0), "batch_size must be an integer of at least 1, got 0"),
        (lambda: MODEL.gradient(3, sweeps=1), "sweeps must be an integer of at least 2, got 1"),
        (lambda: MODEL.perplexity(TOPICS, COUNTS, 0 * COUNTS), "hidden have words to be scored by, got 7 and 0 words"),
        (lambda: MODEL.perplexity(TOPICS, COUNTS, COUNTS[:1]), "got shapes \\(2, 3\\), \\(3, 3\\) and \\(1, 3\\)"),
        (lambda: MODEL.perplexity(TOPICS, COUNTS[:, :2], COUNTS[:, :2]), "got shapes \\(2, 3\\), \\(3, 2\\)"),
        (lambda: MODEL.perplexity(THETA, COUNTS, COUNTS), "rows that add up to 1, got sums from 1.6 to 1.9"),
        (lambda: MODEL.perplexity(TOPICS, COUNTS, COUNTS, rounds=0), "rounds must be an integer of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
