"""`shardpost letters redrive` and `discard`: print the plan, or carry it out with --apply."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Concatenate

import click

from shardpost.commands.console import (
    AS_JSON,
    BY,
    INSTANT,
    KEY,
    WHY,
    grouped,
    print_document,
    text_table,
)
from shardpost.dead_letters.model.letter_history import ListFilters
from shardpost.dead_letters.model.redrive_request import (
    VALUE_BYTES,
    RedriveRequest,
    require_fitting,
)
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, UsageError, one_line, shown
from shardpost.installation import opened

if TYPE_CHECKING:
    from shardpost.dead_letters.redrive import Redrive
    from shardpost.dead_letters.redrive_plan import RedrivePlan

AGAIN_IN_VAIN = "--again changes nothing: no selected letter was parked twice by the same error"


@dataclass(frozen=True)
class ParkedOptions:
    """Which parked letters are selected, and whether and how fast the plan is carried out."""

    ids: tuple[str, ...]
    origin: str | None
    error: str | None
    since: datetime | None
    until: datetime | None
    canary: int | None
    rate: float | None
    up_to: str | None
    why: str
    by: str
    is_applied: bool

    def request(
        self, *, is_redrive: bool, allow_repeated: bool = False, value: bytes | None = None
    ) -> RedriveRequest:
        """Return the request of whoever calls, now; UsageError for one without a reason."""
        if self.is_applied and not self.why.strip():
            raise UsageError("--apply needs --why, which is recorded with the name (--by)")
        if self.rate is not None and not self.is_applied:
            raise UsageError("--rate needs --apply: a plan moves no letters")
        ids = frozenset(self.ids) if self.ids else None
        return RedriveRequest(
            ListFilters(None, self.origin, self.error, self.since, self.until, ids=ids),
            is_redrive,
            self.by,
            self.why,
            datetime.now(UTC),
            allow_repeated,
            value,
        )


def _finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"expected a finite number, found {value}")
    return value


PARKED_OPTIONS = (
    click.option(
        "--id", "ids", multiple=True, type=KEY, metavar="ID", help="Only this letter; repeatable."
    ),
    click.option("--origin", metavar="TOPIC", help="Only letters of this topic."),
    click.option("--error", metavar="FINGERPRINT", help="Only letters parked with this error."),
    click.option(
        "--since", type=INSTANT, metavar="TIME", help="Only letters parked since this time."
    ),
    click.option(
        "--until", type=INSTANT, metavar="TIME", help="Only letters parked before this time."
    ),
    click.option("--canary", type=click.IntRange(1), metavar="N", help="Only the first N of them."),
    click.option(
        "--rate",
        type=click.FloatRange(0.001),
        callback=_finite,
        metavar="N",
        help="At most N letters a second.",
    ),
    click.option(
        "--up-to",
        metavar="PLAN",
        help="Only letters that a plan showed: the value that it printed.",
    ),
    click.option(
        "--apply", "is_applied", is_flag=True, help="Carry out the plan; else it is only printed."
    ),
    WHY,
    BY,
    AS_JSON,
)


def parked_options(function: Callable[Concatenate[ParkedOptions, ...], int]) -> Callable[..., int]:
    """Give a command the options of ParkedOptions, as one value."""
    command = grouped(ParkedOptions)(function)
    for option in reversed(PARKED_OPTIONS):
        command = option(command)
    return command


def redrive_or_discard(options: ParkedOptions, request: RedriveRequest) -> int:
    """Print the plan, or carry it out; return the exit code."""
    from shardpost.dead_letters.redrive_plan import plan_redrive, prepared

    redrive = prepared(opened(), request, options.canary, options.rate, options.up_to)
    planned = plan_redrive(redrive)
    if request.allow_repeated and request.value is None:
        without = plan_redrive(replace(redrive, request=replace(request, allow_repeated=False)))
        if without.refused_count == planned.refused_count:
            click.echo(AGAIN_IN_VAIN, err=True)
    if request.value is not None:
        from shardpost.holders.plausibility import problem_of

        for origin, _ in planned.groups:
            if problem := problem_of(redrive.installation, origin, request.value):
                said = one_line(f"--value: the next compaction {problem}")
                if options.is_applied and not request.allow_repeated:
                    raise UsageError(f"{said}. Nothing was redriven: correct it, or add --again")
                click.echo(said, err=True)
    done = _carry_out(redrive, planned) if options.is_applied else None
    print_document(planned.as_json(request.kind, done), lambda: _plan_text(planned, request, done))
    return NEEDS_ATTENTION if planned.refused_count else DONE


def _carry_out(redrive: "Redrive", planned: "RedrivePlan") -> int:
    """Return how many letters have moved; what did not is refused in the plan."""
    from shardpost.dead_letters.redrive import RedriveResult
    from shardpost.dead_letters.redrive_plan import carry_out

    result = RedriveResult()
    try:
        carry_out(redrive, planned, result)
    except KeyboardInterrupt:
        raise ShardpostError(
            f"interrupted: {result.count} {redrive.request.kind}; for the rest run the same command"
            f" again with --up-to {planned.shown}"
        ) from None
    return result.count


def _plan_text(planned: "RedrivePlan", request: RedriveRequest, done: int | None) -> str:
    groups = planned.groups.most_common()
    rows = [(*group, count, planned.samples[group]) for group, count in groups]
    lines = [text_table(("origin", "error", "letters", "such as"), rows)] if rows else []
    lines += [one_line(f"refused: {shown(name)}: {why}") for name, why in planned.refused.items()]
    if planned.refused_count > len(planned.refused):
        lines.append(f"and {planned.refused_count - len(planned.refused)} more are refused")
    if done is None:
        to_do = f"; to apply exactly this, add --apply --up-to {planned.shown}"
        lines.append(f"{planned.count} would be {request.kind}{to_do if planned.count else ''}")
    else:
        lines.append(f"{done} {request.kind}")
    if planned.not_shown:
        lines.append(f"not changed: {planned.not_shown} more, which were not in the plan")
    return "\n".join(lines)


@click.command("redrive")
@click.option(
    "--value",
    metavar="FILE|JSON",
    help="Value to send instead: JSON, a file, or - for standard input; with one --id.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Also letters already parked twice by the same error, and a --value that is rejected"
    " again, which are otherwise refused.",
)
@parked_options
def redrive_command(options: ParkedOptions, value: str | None, again: bool) -> int:
    """Send parked letters back to their retry topic: print the plan, or carry it out with --apply.

    An exhausted letter has one more attempt; if that fails, it is parked again. Exit code 3: done,
    and some of the selected letters were refused.
    """
    if value is not None and len(options.ids) != 1:
        raise UsageError("--value applies to one letter: add its --id")
    new_value = new_value_of(value) if value is not None else None
    request = options.request(is_redrive=True, allow_repeated=again, value=new_value)
    return redrive_or_discard(options, request)


JSON_BEGINS = ("{", "[", '"')


def new_value_of(text: str) -> bytes:
    """Return what `--value` stands for: JSON as it is typed, or the content of a file.

    What begins as JSON does is JSON: a file with such a name is given with its folder.
    """
    if text.lstrip().startswith(JSON_BEGINS):
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"--value {text}: expected JSON, or the name of a file: {error}"
            ) from None
        value = text.encode(errors="surrogateescape")
    else:
        try:
            with click.open_file(text, "rb") as file:
                value = file.read(VALUE_BYTES + 1)
        except OSError as error:
            reason = f"{error.strerror}: expected a file, - for standard input, or JSON"
            raise UsageError(f"--value {text}: cannot be read: {reason}") from None
    require_fitting(value, f"--value {text}")
    return value


@click.command("discard")
@parked_options
def discard_command(options: ParkedOptions) -> int:
    """Discard parked letters for good: print the plan, or carry it out with --apply.

    Exit code 3: done, and some of the letters given with --id were refused.
    """
    return redrive_or_discard(options, options.request(is_redrive=False))
