"""Starts the command `langevin`, or says in one sentence what it needs."""

import sys


def main() -> None:
    """Entry point of `langevin` and of `python -m langevin`."""
    try:
        from langevin.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"The command needs {error.name}: pip install 'langevin[cli]'.")
    app(prog_name="langevin")


if __name__ == "__main__":
    main()
