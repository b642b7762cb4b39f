"""`langevin compare topics`: every method learns, shuffled topics do not, and the table has its errors."""

import numpy as np
import pytest
from rich.console import Console

from langevin.compare import command, workshop
from langevin.compare.page import markdown
from langevin.compare.record import Record
from langevin.compare.table import read
from langevin.compare.topics import METHODS, NAME, TOPICS, Corpus, simulated
from langevin.compare.topics_table import failed, read_topics
from langevin.compare.workshop import Size, cell_name, scaled

SIZE = Size(seconds=0.05, passes=20.0, replicates=4, limit=300.0)


# Its compilation takes longer than a fast test may.
TIMED = [
    pytest.param("sgrld", 1.0, marks=pytest.mark.slow),
    *((name, 0.2) for name in METHODS if name != "sgrld"),
]


@pytest.mark.parametrize(("name", "seconds"), TIMED)
def test_every_method_learns_topics(name, seconds):
    if METHODS[name].missing:
        pytest.skip(f"{METHODS[name].missing} not installed: {METHODS[name].install}")
    counts, topics = simulated(np.random.default_rng(5), documents=100, words=60, length=50)
    one = Corpus.of(counts, topics)
    assert one.num_data == 80 and np.array_equal((one.seen + one.hidden).sum() + one.kept.sum(), counts.sum())
    replicate = METHODS[name].build(one, seconds)
    # The first one compiles, as in a worker.
    found = [replicate(seed, seconds, 0.0) for seed in (0, 1)][1]["seconds"]
    bounds = one.bounds
    assert bounds["the true topics"] < found["perplexity"] < bounds["one topic for all"]
    assert found["visits"] > 0.0 and found["seconds"] >= seconds
    # Sabotage: topics with their words shuffled know nothing.
    shuffled = np.random.default_rng(6).permuted(topics, axis=1)
    assert one.perplexity(shuffled) > bounds["one topic for all"] and topics.shape == (TOPICS, 60)


def filled(path, **perplexities):
    record = Record(path)
    for name, values in perplexities.items():
        made = [{"seconds": {"perplexity": v, "seconds": 0.5, "visits": 3200.0}} for v in values]
        record.add(cell_name(NAME, name.replace("_", "-"), SIZE), {"compiling": 1.0, "replicates": made})
    return record


def test_perplexities_have_their_errors_and_lost_replicates_are_named():
    own = scaled(NAME, SIZE)
    assert (own.seconds, own.replicates) == (0.5, 2) and scaled("gaussian", SIZE) is SIZE
    found = read_topics(filled(None, sgrld=[230.0, 234.0], sklearn_lda=[250.0, float("nan")]), list(METHODS), SIZE)
    line = found.lines["sgrld"]
    assert (line.perplexity, line.error, line.rounds) == (232.0, pytest.approx(2.0), 2.0)
    assert found.ranked()[0] == "sgrld" and failed(found)
    assert found.lines["sklearn-lda"].words == "failed 1 of 2: its perplexity is not finite"
    text = markdown(read(Record(None), [], [], SIZE), found)
    assert "| `sgrld` | langevin | 232 ± 2 | 0.5 | 2 |" in text and "| `sklearn-lda`" not in text
    assert "nan" not in text and "the true topics" in text


def test_the_command_keeps_topics_in_its_record_and_puts_them_on_its_page(tmp_path, monkeypatch):
    filled(tmp_path / "record.jsonl", sgrld=[230.0, 234.0], sklearn_lda=[250.0, 251.0])
    monkeypatch.setattr(workshop.Cells, "_worked", lambda *a: pytest.fail("worked again"))
    console = Console(width=200, record=True)
    assert command.run([NAME], ["sgrld", "sklearn-lda"], SIZE, tmp_path, 1, console) == 0
    text = (tmp_path / "compare.md").read_text()
    assert text.index("232 ± 2") < text.index("250.5 ± 0.5") and not (tmp_path / "compare.png").exists()
    assert "232 ± 2" in console.export_text()
