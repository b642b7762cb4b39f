"""Memory does not grow with the number of steps. `python -m benchmarks.memory` is the long version."""

from benchmarks import memory


def test_memory_does_not_grow_with_the_number_of_steps():
    used = memory.usage(chains=64, num_steps=200_000)
    assert used.growth < memory.MOST_GROWTH, used
    assert used.largest(0.0, 1.0) > 50.0  # a process with JAX: the readings are real


def test_control_a_leak_of_a_megabyte_a_block_is_seen():
    assert memory.usage(chains=64, num_steps=200_000, leak=1).growth > memory.MOST_GROWTH + 10
