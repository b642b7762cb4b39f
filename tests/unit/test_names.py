"""A dotted name means one thing: `langevin.x` is not a function where `langevin/x.py` is a module."""

from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import langevin


def test_no_module_is_shadowed_by_an_attribute_of_its_package():
    names = [module.name for module in walk_packages(langevin.__path__, "langevin.") if "__main__" not in module.name]
    for name in names:
        import_module(name)
    shadowed = {name for name in names if not isinstance(attribute(name), ModuleType)}
    assert not shadowed


def attribute(name):
    package, _, last = name.rpartition(".")
    return getattr(import_module(package), last)
