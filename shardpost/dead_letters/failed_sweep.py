"""The error of a sweep that fails after it has found what no later sweep finds again.

Letters that were parked and offsets that are gone are committed by then, so its error names them.
With offsets that are gone, which nothing else shows afterwards, it ends with 3: Airflow then does
not repeat it before anybody is told, and the next sweep goes on.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shardpost.dead_letters.model.sweep_result import SEE_PARKED, for_a_person
from shardpost.errors import NEEDS_ATTENTION, ShardpostError

log = logging.getLogger(__name__)

# Lines of what needs a person in one error; the log has them all.
MOST_NAMED = 20


class LostLettersError(ShardpostError):
    """A sweep failed after it had found that letters are gone unread."""

    exit_code = NEEDS_ATTENTION


@contextmanager
def naming(result: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Name in an error what the result, as far as it goes, has for a person; gaps come first."""
    try:
        yield
    except Exception as error:
        found = result()
        lines = sorted(for_a_person(found), key=lambda line: line.endswith(SEE_PARKED))
        if not lines:
            raise
        more = len(lines) - MOST_NAMED
        named = [*lines[:MOST_NAMED], *([f"and {more} more: see its log"] if more > 0 else [])]
        kind = LostLettersError if found["gaps"] else ShardpostError
        raise kind("; ".join([_said(error), *named])) from error


def _said(error: Exception) -> str:
    if isinstance(error, ShardpostError):
        return str(error)
    log.error("the sweep failed", exc_info=error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"
