"""What a person sees of what went wrong: errors with their exit codes, and text of others.

An error is one clear line. In text of others nothing may steer a terminal.
"""

import re
from collections.abc import Sequence

DONE = 0
COULD_NOT = 1
BAD_USAGE = 2
NEEDS_ATTENTION = 3
NAMED_FAILURES = 5  # of what combined() names


class ShardpostError(Exception):
    """Something could not be done: where, what was expected, what was found, what to do."""

    exit_code = COULD_NOT


class UsageError(ShardpostError):
    """The command, a parameter or a setting is wrong; trying again does not help."""

    exit_code = BAD_USAGE


class WrongArgumentError(UsageError):
    """An argument of one run is wrong, such as its week; whoever gave it reads that: no alert."""


class TablesAwayError(ShardpostError):
    """The tables could not be read or written, as while their store does not answer."""


class NotFoundError(ShardpostError):
    """There is no such thing as was asked for: it never was, or is gone."""


class NoSnapshotError(ShardpostError):
    """Nothing was compacted in this home yet; it may be another than was meant."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def said(error: BaseException) -> str:
    """Return what an error says; of one that is not ours, also that it was unexpected."""
    if isinstance(error, ShardpostError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}"


def combined(failures: Sequence[Exception]) -> Exception:
    """Return one error that says once what they say, of the first five; a single one as it is."""
    unlike = [*{str(error): error for error in failures}.values()]
    if len(unlike) == 1:
        return unlike[0]
    texts = [said(one) for one in unlike[:NAMED_FAILURES]]
    if more := unlike[NAMED_FAILURES:]:
        texts.append(f"and {len(more)} more")
    return ShardpostError("; ".join(texts))


# Control characters but tab and newline, and those that turn the direction of a line.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_REPLACED = "\ufffd"


def harmless(text: str) -> str:
    """Return text of one or more lines; what could steer a terminal becomes U+FFFD."""
    return _STEERING.sub(_REPLACED, text)


def one_line(text: str) -> str:
    """Return text of a single line: a newline becomes U+FFFD as well."""
    return harmless(text).replace("\n", _REPLACED)


def visible(value: str) -> str:
    """Return an id or another value so that it looks like no other one.

    Quoted, with escapes, if it is empty, has blanks at an end, or characters that nobody sees.
    """
    is_plain = value != "" and value == value.strip() and value.isprintable()
    return value if is_plain else repr(value)


_WORDS = frozenset({"all", "any", "anybody", "everybody", "no", "nobody", "none", "nothing"})


def shown(value: str) -> str:
    """Return the same in a sentence: an id that is also a word, such as nobody, is quoted."""
    return repr(value) if value.casefold() in _WORDS else visible(value)


# With those that turn the direction of a line, and so make it say something else.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def single_line(text: str, longest: int) -> str:
    """Return text as one line of at most `longest` characters; those of control become a space."""
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= longest else line[: longest - 1] + "…"
