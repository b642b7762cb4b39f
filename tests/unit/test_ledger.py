"""The books: rows merged pairwise are the direct sums, whatever the cuts; integers make every sum exact."""

import numpy as np
import pytest

from langevin.engine.draws import DrawBook
from langevin.engine.ledger import RowBook
from langevin.engine.program import BASE_ROW, MOST_ROWS, device_row_steps, row_steps
from langevin.schedules import Custom

# Around every border of the rows: a row, the first doubling, the longest device row (256), and far beyond.
LENGTHS = [
    1,
    15,
    16,
    17,
    500,
    16384,
    16385,
    16400,
    32768,
    32800,
    262143,
    262144,
    262145,
    262400,
    300_000,
    800_000,
]


def sums_of_m(start, stop):
    """Sum of m and of m^2 over start < m <= stop, as the device would hand them over: exact integers in float64."""
    m = np.arange(start + 1, stop + 1, dtype=np.float64)
    return {"m": np.array([m.sum()]), "m2": np.array([(m**2).sum()])}


def whole_rows(start, count, length):
    m = np.arange(start + 1, start + count * length + 1, dtype=np.float64).reshape(count, length)
    return {"m": m.sum(axis=1), "m2": (m**2).sum(axis=1)}


def book_of(total, most=8192):
    """A book filled as the host loop fills it: blocks of at most `most` that end at the doublings, whole rows only."""
    book, m = RowBook(), 0
    while m < total:
        stop = min(m + most, total, MOST_ROWS * row_steps(m + 1))
        length = device_row_steps(m + 1)
        first, last = m // length, stop // length
        book.append(whole_rows(first * length, last - first, length), length)
        m = stop
    return book


def table_of(total, most=8192):
    book = book_of(total, most)
    return book.table(sums_of_m(book.m, total) if book.m < total else {}, total)


@pytest.mark.parametrize("total", LENGTHS)
def test_rows_are_the_direct_sums_of_their_transitions(total):
    length, rows = table_of(total)
    assert length == row_steps(total)
    m = np.arange(1, total + 1, dtype=np.float64)
    starts = np.arange(0, total, length)
    assert np.array_equal(rows["m"], np.add.reduceat(m, starts))
    assert np.array_equal(rows["m2"], np.add.reduceat(m**2, starts))


@pytest.mark.parametrize("total", [17, 16400, 40_000, 270_000])
@pytest.mark.parametrize("most", [1000, 8191])
def test_rows_do_not_depend_on_the_cuts(total, most):
    (_, expected), (_, found) = table_of(total), table_of(total, most)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_rows_of_floats_do_not_depend_on_the_cuts():
    # Floats do not add associatively: equal bits need the same order of additions.
    values = np.random.default_rng(0).standard_normal(40_960 // 16)

    def filled(step):
        book, at, m = RowBook(), 0, 0
        while m < 40_960:
            length = device_row_steps(m + 1)
            count = min(step, (MOST_ROWS * row_steps(m + 1) - m) // length, (40_960 - m) // length)
            book.append({"x": values[at : at + count]}, length)
            at, m = at + count, m + count * length
        return book.table({}, 40_960)[1]["x"]

    expected = filled(1)
    for step in (3, 64, 1000):
        assert np.array_equal(filled(step), expected)


@pytest.mark.parametrize("m", [1, 16384, 16385, 10**6, 10**9, 10**12])
def test_a_ledger_never_has_more_than_1024_rows(m):
    assert -(-m // row_steps(m)) <= MOST_ROWS == 1024
    assert row_steps(m) == BASE_ROW or -(-m // (row_steps(m) // 2)) > MOST_ROWS
    assert device_row_steps(m) <= 256


def test_a_copy_of_a_book_is_independent():
    book = book_of(300)
    copy = book.copy()
    book.append(whole_rows(288, 1, 16), 16)
    assert copy.m == 288 and book.m == 304
    assert len(copy.table({}, 288)[1]["m"]) == 18


# --- kept draws ---


def kept(book, start, count):
    """What the device keeps of theta_{m-1} = m: one slot a stride, the last transition of a stride wins."""
    stride = book.stride(start + 1)
    slots = np.zeros((1, 1, book.cap + 1, 1))
    for m in range(start + 1, start + count + 1):
        slots[0, 0, (start % stride + m - start - 1) // stride] = m
    return {"theta": slots, "grad": -slots}


@pytest.mark.parametrize("cap", [2, 5, 8])
@pytest.mark.parametrize("most", [1, 3, 1000])
def test_draws_are_every_stride_th_transition_whatever_the_cuts(cap, most):
    for total in (1, 7, 8, 9, 40, 41):
        book, m = DrawBook(cap), 0
        while m < total:
            count = min(most, book.room(m), total - m)
            book.append(m, count, kept(book, m, count))
            m += count
        draws = book.draws(total, Custom(lambda m: m), 1.0)
        stride = book.stride(total)
        expected = np.arange(stride, total + 1, stride)
        assert len(expected) <= cap
        assert np.array_equal(draws.m, expected)
        assert np.array_equal(draws.theta[0, :, 0], expected) and np.array_equal(draws.grad[0, :, 0], -expected)
        assert np.array_equal(draws.weight, [sum(range(e - stride + 1, e + 1)) for e in expected])


def test_a_book_does_not_hold_on_to_the_buffers_it_was_given():
    book, buffers = DrawBook(8), kept(DrawBook(8), 0, 3)
    book.append(0, 3, buffers)
    assert not any(np.shares_memory(chunk, buffers[name]) for name, chunks in book._kept.items() for chunk in chunks)
