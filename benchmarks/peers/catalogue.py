"""The five tables, and the snippets that are run and counted: files that a user could run as they are."""

from dataclasses import dataclass
from pathlib import Path

SNIPPETS = Path(__file__).with_name("snippets")
# The same call, content with bars five times as long.
QUICK = ("priors=priors)", "priors=priors, precision=0.1)")


@dataclass(frozen=True)
class Case:
    """One table: `nuts` is the peer that samples, `control` the prior of the negative control and what it becomes."""

    name: str
    model: str
    rows: int
    nuts: str = "bambi"
    control: tuple[str, str] = ("normal(0, 1)", "normal(0, 0.1)")

    @property
    def peers(self) -> tuple[str, str, str]:
        """Who has a snippet for this table."""
        return ("langevin", self.nuts, "statsmodels")

    def snippet(self, peer: str, *changes: tuple[str, str]) -> str:
        """What a peer runs, with changes of passages that must be there, once."""
        text = (SNIPPETS / self.name / f"by_{peer}.py").read_text()
        for old, new in changes:
            if text.count(old) != 1:
                raise ValueError(f"{old!r} must occur once in the snippet of {self.name}, got {text.count(old)} times.")
            text = text.replace(old, new)
        return text


CASES = (
    Case("sleepstudy", "gaussian, `(1 + Days \\| Subject)`", 180, "pymc", ("normal(0, 20)", "normal(0, 2)")),
    Case("cbpp", "binomial, `(1 \\| herd)`", 56),
    Case("birthwt", "bernoulli", 189),
    Case("insurance", "poisson, offset", 64),
    Case("quine", "negative-binomial", 146),
)


def lines(snippet: str) -> int:
    """Lines that are neither empty nor a comment."""
    stripped = (line.strip() for line in snippet.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in stripped)
