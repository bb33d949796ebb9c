"""What commands take from a terminal and print to it: options, their types, tables of text.

Nothing here imports the settings, so that `--help` stays fast.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import wraps
from getpass import getuser
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

import click

from shardpost import logs
from shardpost.errors import ShardpostError, UsageError, harmless, one_line, visible
from shardpost.instants import parse_duration, parse_instant
from shardpost.wording import json_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P")


class Parsed(click.ParamType[P]):
    """An argument that a function reads; what that refuses is a usage error."""

    def __init__(self, name: str, read: Callable[[str], P]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> P:
        """Return what the function reads."""
        try:
            return self._read(str(value))
        except (UsageError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _utf8(text: str) -> str:
    """Return the text; a shell may pass bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("expected UTF-8") from None
    return text


KEY = Parsed("key", _utf8)
INSTANT = Parsed("time", parse_instant)  # ISO 8601; UTC if it has no time zone
DURATION = Parsed("duration", parse_duration)


def person() -> str:
    """Return the user's login name, or its number where it has none, as in a container."""
    try:
        return getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _who(_: click.Context, __: click.Parameter, by: str | None) -> str:
    if by is not None and not by.strip():
        raise UsageError("--by: expected a name, found none")
    return person() if by is None else by


BY = click.option(
    "--by", metavar="NAME", callback=_who, help="Who does this; by default the user's login name."
)


def _flag_of_all(name: str, said: str) -> Callable[[Any], Any]:
    """Return a flag that no command gets: who goes by it asks the context of the command."""
    return click.option(
        f"--{name}",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=lambda ctx, _, value: ctx.meta.update({f"shardpost.{name}": value}),
        help=said,
    )


def _is_set(name: str) -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(f"shardpost.{name}"))


YES = _flag_of_all("yes", "Do not ask for confirmation. Without a terminal, nothing is asked.")
AS_JSON = _flag_of_all("json", "Print one JSON document.")


def wants_json() -> bool:
    """Tell whether the result of this command is printed as JSON."""
    return _is_set("json")


def can_ask() -> bool:
    """Tell whether a person can be asked: on a terminal, and without `--yes`."""
    streams = (sys.stdin, sys.stderr)
    return not _is_set("yes") and all(stream is not None and stream.isatty() for stream in streams)


def confirm(question: str, plan: Callable[[], Iterable[str]] = tuple) -> None:
    """Ask before what cannot be undone; ShardpostError if the answer is no.

    The plan is printed above the question, and only made where somebody is asked.
    """
    if not can_ask():
        return
    for line in plan():
        click.echo(harmless(line), err=True)
    is_confirmed = click.confirm(question, err=True)
    logs.resume_line()
    if not is_confirmed:
        raise ShardpostError("not confirmed: nothing was changed")


WEEK = click.option("--week", required=True, metavar="WEEK", help="ISO week, such as 2026-W47.")


def _why(*, is_needed: bool) -> Callable[[Any], Any]:
    """Return the option of a reason; on a terminal it is asked for where it is not given."""

    def given(ctx: click.Context, param: click.Parameter, reason: str | None) -> str:
        if not ctx.params.get("is_applied", True) or ctx.params.get("dry_run"):  # it only plans
            return reason or ""
        if reason is None and can_ask():
            default = None if is_needed else ""
            reason = click.prompt("Why", default, type=KEY, show_default=False, err=True)
            logs.resume_line()
        if reason is None and is_needed:
            raise click.MissingParameter(ctx=ctx, param=param)
        if is_needed and not (reason or "").strip():
            raise UsageError("--why: expected a reason, found none")
        return reason or ""

    text = "Reason, which is recorded. A terminal prompts for it."
    return click.option("--why", type=KEY, callback=given, metavar="TEXT", help=text)


WHY, NEEDED_WHY = _why(is_needed=False), _why(is_needed=True)
COUNTRY_CHANGED = click.option(
    "--country-changed",
    is_flag=True,
    help="Continue although SHARDPOST_COUNTRY or SHARDPOST_HOLDS differs from the last snapshot's,"
    " or no exchange meets it.",
)
ACCEPT_DROP = click.option(
    "--accept-drop",
    is_flag=True,
    help="Accept, for this run, that open positions, holders or recipients drop, or positions on"
    " unknown exchanges grow, by more than SHARDPOST_MAX_DROP; or that a week has no recipient.",
)
TAKE_OVER = click.option(
    "--take-over",
    is_flag=True,
    help="Take ownership of the topics; the installation that owned them is refused.",
)


def _registry_url(text: str) -> str:
    from shardpost.holders.model.input_mapping import registry_url

    return registry_url(text)


REGISTRY = click.option(
    "--registry",
    "url",
    type=Parsed("url", _registry_url),
    metavar="URL",
    help="Schema registry, with Confluent's API; by default one that SHARDPOST_INPUTS names.",
)
SNAPSHOT = click.option(
    "--snapshot", "number", type=int, metavar="N", help="Snapshot to read; by default the newest."
)


def print_document(document: object, text: Callable[[], str | Iterable[str]]) -> None:
    """Print a document as JSON, or else its text or lines.

    The text is only made where it is printed; an empty one prints nothing.
    """
    if wants_json():
        click.echo(json_text(document))
        return
    found = text()
    for line in filter(None, [harmless(found)]) if isinstance(found, str) else map(one_line, found):
        click.echo(line)


T = TypeVar("T", bound="DataclassInstance")


def grouped(kind: type[T]) -> Callable[[Callable[Concatenate[T, ...], int]], Callable[..., int]]:
    """Pass the options that are fields of a dataclass as one value, the first argument."""
    known = [field.name for field in fields(kind)]

    def decorate(function: Callable[Concatenate[T, ...], int]) -> Callable[..., int]:
        @wraps(function)
        def command(**options: Any) -> int:
            value = kind(**{name: options.pop(name) for name in known if name in options})
            return function(value, **options)

        return command

    return decorate


def text_table(heading: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return aligned columns under a heading; what is invisible in a cell is quoted.

    Of None, as of an empty text, a cell has nothing.
    """
    lines = [["" if one in (None, "") else visible(str(one)) for one in row] for row in rows]
    lines.insert(0, [*heading])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    )
