"""No test may depend on what earlier runs have compiled, nor leave anything in the user's folders."""

import os

import pytest

os.environ["LANGEVIN_NO_CACHE"] = "1"


def pytest_configure(config):
    """The quick tests are compiled without XLA's fusion emitters; the others as a user's programs are.

    The same bits from programs that take a fifth less processor time to test, compiling being most of it, and that run
    a tenth slower.
    """
    option = "--xla_cpu_use_fusion_emitters=false"
    if "not slow" in config.option.markexpr and option not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {option}".strip()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, testrun_uid):
    """One folder for this run of pytest, the same in all its processes, and empty when it begins."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return tmp_path_factory.mktemp("shared")
    folder = tmp_path_factory.getbasetemp().parent / f"shared-{testrun_uid}"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def programs(shared_folder):
    """What a test compiles serves the others: most compile what another has compiled, in one process or the other.

    A program found here is the one that the compiler gave for the same text, so no number changes. Processes that a
    test starts compile for themselves, as a user's first call does, for LANGEVIN_NO_CACHE is set.
    """
    from langevin import startup

    folder = startup._Folder(shared_folder / "langevin" / "programs")
    folder._path.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "_folder", lambda: folder)
        with startup.own_programs():
            yield
