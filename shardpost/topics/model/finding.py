"""A finding of the audit: what is there, what should be, why it matters, and what mends it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.topics.model.found import Source

# Data is being lost or will be; one failure away from that; not as declared, with nothing at stake.
Severity = Literal["loss", "risk", "drift"]
ORDER: tuple[Severity, ...] = ("loss", "risk", "drift")
RUNBOOK = "docs/runbook.md"


@dataclass(frozen=True)
class Finding:
    """One departure; `topic` is None where it concerns the cluster.

    `rule` names its section of the runbook.
    """

    rule: str
    severity: Severity
    topic: str | None
    setting: str
    found: str
    source: Source
    expected: str
    why: str
    fix: str

    @property
    def runbook(self) -> str:
        """Return where the runbook says more."""
        return f"{RUNBOOK}#{self.rule}"

    def as_json(self) -> dict[str, str | None]:
        """Return the form of `topics audit --json`."""
        form = asdict(self)
        del form["rule"]
        return form | {"why": f"{self.why} ({self.runbook})"}


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by severity, then as they came."""
    return sorted(findings, key=lambda one: ORDER.index(one.severity))


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 3 if data is lost or at risk, else 0."""
    return NEEDS_ATTENTION if any(one.severity != "drift" for one in findings) else DONE
