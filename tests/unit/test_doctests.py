"""Every public name shows how it is used, and what it shows is true."""

import doctest
from types import ModuleType

import pytest

import langevin as lv

PUBLIC = {
    f"{room.__name__}.{name}": getattr(room, name)
    for room in (lv, lv.models, lv.shards, lv.sklearn, lv.theory)
    for name in room.__all__
    if not isinstance(getattr(room, name), ModuleType)
}


def examples(name):
    """The examples of a class and its methods, or of a function."""
    module = __import__(PUBLIC[name].__module__, fromlist=["_"])
    found = doctest.DocTestFinder().find(PUBLIC[name], name, module=False, globs=vars(module))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_are_there(name):
    assert examples(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_are_true(name):
    for test in examples(name):
        said = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed, _ = runner.run(test, out=said.append)
        assert not failed, "".join(said)


def test_a_wrong_example_is_noticed():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner().run(test, out=lambda text: None).failed == 1
