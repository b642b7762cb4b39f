"""`langevin fit`: what it prints, and what it says of bad input."""

import pytest

from tests.unit.regressions import TABLE, pandas


def test_the_command_fits_and_prints(tmp_path):
    typer = pytest.importorskip("typer.testing")
    from langevin.cli import app

    TABLE.to_csv(tmp_path / "table.csv", index=False)
    run = typer.CliRunner().invoke
    found = run(app, ["fit", str(tmp_path / "table.csv"), "y ~ x", "--passes", "40", "--prior", "x=normal(0, 1)",
                      "--out", str(tmp_path / "out")])  # fmt: skip
    assert found.exit_code == 0 and "log sigma" in found.output and "Status ok" in found.output
    summary = pandas.read_csv(tmp_path / "out" / "summary.csv", index_col=0)
    assert summary.index.tolist() == ["Intercept", "x", "log sigma"] and "q97.5" in summary


@pytest.mark.parametrize(
    ("content", "call", "said"),
    [
        ("x,y\n1,2\n", ["y ~ z"], "'z' is neither. Columns are 'x', 'y'."),
        ("x,y\n1,2\n", ["y ~ x", "--prior", "x"], "--prior must be NAME=LAW"),
        ("x,y\n1,2\n,3\n", ["y ~ x"], "leave these rows out with --drop-missing"),
        ("x,y\n1,2\n2,3\nmany,4\n", ["y ~ x"], "'x' must hold numbers, got 'many' in row 2"),
        ("x,y\n1,1\n2,1\n", ["y ~ x", "--family", "bernoulli"], "both must occur for family 'bernoulli', got 1."),
        ("x,x,y\n1,1,2\n", ["y ~ x"], "got 'x' twice"),
        ("", ["y ~ x"], "the file is empty"),
        ("x,y\n", ["y ~ x"], "at least one row"),
        ("x,y\n1,2\n", ["y ~ x +"], "formula must be readable"),
        ("x,y\n1,2\n", ["y ~ x | z"], "Write (1 | town)"),
        ("x,y\n1,2\n", ["y ~ logg(x)"], "'logg' is neither"),
        (None, ["y ~ x"], "No such file or directory"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(content, call, said, tmp_path):
    typer = pytest.importorskip("typer.testing")
    from langevin.cli import app

    file = tmp_path / "table.csv"
    if content is not None:
        file.write_text(content)
    refused = typer.CliRunner().invoke(app, ["fit", str(file), *call])
    assert refused.exit_code == 2 and said in refused.output
    assert refused.output.startswith("Error: ") and refused.output.count("\n") == 1
    shown = typer.CliRunner().invoke(app, ["fit", str(file), *call, "--debug"])
    assert shown.exit_code == 2 and "Traceback" in shown.output
