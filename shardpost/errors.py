"""The errors that a person sees: one clear line, and the exit code that goes with it."""

from collections.abc import Sequence

DONE = 0
COULD_NOT = 1
BAD_USAGE = 2
NEEDS_ATTENTION = 3


class ShardpostError(Exception):
    """Something could not be done.

    Its text says where, what was expected, what was found, what to do.
    """

    exit_code = COULD_NOT


class UsageError(ShardpostError):
    """The command, a parameter or a setting is wrong; trying again does not help."""

    exit_code = BAD_USAGE


NAMED_FAILURES = 5


def combined(failures: Sequence[Exception]) -> Exception:
    """Return one error that says what each of them says, the first five; a single one as it is."""
    if len(failures) == 1:
        return failures[0]
    said = [_said(failure) for failure in failures[:NAMED_FAILURES]]
    if more := failures[NAMED_FAILURES:]:
        said.append(f"and {len(more)} more")
    return ShardpostError("; ".join(said))


def _said(failure: Exception) -> str:
    kind = "" if isinstance(failure, ShardpostError) else f"{type(failure).__name__}: "
    return f"{kind}{failure}"
