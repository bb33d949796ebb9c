"""A line of `shardpost doctor`: what was found, what is expected, and the fix.

Unlike a `Finding` of the audit or a `Condition` of the watch, it also says what is in order.
"""

import re
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "error", "unknown"]
_COMMAND = re.compile(r"`((?:shardpost|make|apt-get|kafka-configs\.sh) [^`]*)`")


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the report, in the form of `doctor --json`; `cure` is a command, or what to do.

    `unknown`: it could not be checked; what prevented that is a finding of its own, or no fault.
    """

    check: str
    state: State
    found: str
    expected: str | None = None
    cure: str | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether it is wrong, or will be."""
        return self.state in ("warning", "error")


def ok(check: str, found: str) -> DoctorFinding:
    """Return that something is in order."""
    return DoctorFinding(check, "ok", found)


def warning(check: str, found: str, expected: str, cure: str) -> DoctorFinding:
    """Return a finding that works now, but needs attention soon."""
    return DoctorFinding(check, "warning", found, expected, cure)


def error(check: str, found: str, expected: str, cure: str) -> DoctorFinding:
    """Return a finding that prevents something from working."""
    return DoctorFinding(check, "error", found, expected, cure)


def refused(check: str, problem: Exception, cure: str | None = None) -> DoctorFinding:
    """Return an error of ours as a finding: its text says what was expected, and what to do.

    `cure` is by default the first command that it names.
    """
    named = _COMMAND.search(str(problem))
    return DoctorFinding(check, "error", str(problem), None, cure or (named[1] if named else None))


def unknown(check: str, found: str) -> DoctorFinding:
    """Return why something could not be checked."""
    return DoctorFinding(check, "unknown", found)
