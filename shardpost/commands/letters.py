"""`shardpost letters`: dead letters, what becomes of them, and what a person decides about them."""

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from shardpost.commands.options import AS_JSON, Instant, Key, person
from shardpost.commands.text_table import text_table
from shardpost.dead_letters.model.life import Step
from shardpost.dead_letters.model.redrive_request import VALUE_BYTES, RedriveRequest, Selection
from shardpost.dead_letters.model.transitions import LetterState
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, ShardpostError, UsageError
from shardpost.printable import harmless, one_line

if TYPE_CHECKING:
    from shardpost.dead_letters.model.transitions import Routes
    from shardpost.dead_letters.redrive import RedriveLimits, RedrivePlan
    from shardpost.settings import Settings

STATES = [str(state) for state in LetterState if state is not LetterState.DROPPED]
DECIDED = ("when", "kind", "who", "why")
COUNTS = ("state", "origin", "error", "letters", "oldest", "such as")


@click.group()
def command() -> None:
    """Look after dead letters: waiting, retried, parked, redriven, discarded."""


@command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only letters that stand there.")
@click.option("--origin", metavar="TOPIC", help="Only letters of that topic.")
@click.option("--error", metavar="FINGERPRINT", help="Only letters of that error.")
@click.option("--since", type=Instant(), metavar="TIME", help="Only what came there since then.")
@click.option("--until", type=Instant(), metavar="TIME", help="Only what came there before.")
@AS_JSON
def list_command(as_json: bool, **asked: Any) -> int:
    """Print where all letters stand: counted by state, origin and error; as JSON one by one."""
    from shardpost.dead_letters.letters_table import held_back, standing
    from shardpost.settings import load

    settings = load()
    found = [step for step in standing(settings).values() if _is_asked(step, asked)]
    found.sort(key=lambda step: (step.at, step.id))
    if as_json:
        click.echo(json.dumps([step.as_json() for step in found]))
    else:
        click.echo(_counted(found))
    for place in held_back(settings):
        click.echo(
            f"not to be seen yet: {place.topic}[{place.partition}], offsets {place.first} to"
            f" {place.until - 1}, from an open transaction on (docs/dead-letters.md: When something"
            " is wrong)",
            err=True,
        )
    return 0


@command.command("show")
@click.argument("letter_id", type=Key(), metavar="ID")
@AS_JSON
def show_command(letter_id: str, as_json: bool) -> int:
    """Print one letter: its headers, its value, and its life so far."""
    from shardpost.dead_letters.letter_details import describe
    from shardpost.settings import load

    found = describe(load(), letter_id)
    click.echo(json.dumps(found) if as_json else _in_words(found))
    return 0


@command.command("sweep")
@AS_JSON
def sweep_command(as_json: bool) -> int:
    """Send what is due to its retry topic, park what is beyond help, once.

    Exit code 3: done, and letters were held: too many of one error (SHARDPOST_RETRY_FLOOD), or too
    large to be parked.
    """
    from shardpost.dead_letters.job import SWEEP_DEAD_LETTERS
    from shardpost.settings import load
    from shardpost.spark.submit import submit

    code, result = submit(load(), SWEEP_DEAD_LETTERS, [])
    if result is None:
        return code or COULD_NOT
    click.echo(json.dumps(result) if as_json else _swept(result))
    return code


def _finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"expected a finite number, found {value}")
    return value


RATE = click.option(
    "--rate",
    type=click.FloatRange(0.001),
    callback=_finite,
    metavar="N",
    help="At most N letters a second.",
)
CHOICE = (
    click.option("--id", "ids", multiple=True, type=Key(), metavar="ID", help="Only these."),
    click.option("--origin", metavar="TOPIC", help="Only letters of that topic."),
    click.option("--error", metavar="FINGERPRINT", help="Only letters parked by that error."),
    click.option("--since", type=Instant(), metavar="TIME", help="Only those parked since then."),
    click.option("--until", type=Instant(), metavar="TIME", help="Only those parked before."),
    click.option("--canary", type=click.IntRange(1), metavar="N", help="Only the first N there."),
    RATE,
    click.option("--why", metavar="TEXT", help="Why; it is recorded. Needed with --apply."),
    click.option("--apply", "is_real", is_flag=True, help="Do it; else only the plan is printed."),
    AS_JSON,
)


def _choosing(function: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(CHOICE):
        function = option(function)
    return function


@command.command("redrive")
@click.option("--value", type=click.File("rb"), help="Send this value instead; of one letter.")
@click.option("--again", is_flag=True, help="Also those that one error has parked twice.")
@_choosing
def redrive_command(value: BinaryIO | None, again: bool, **asked: Any) -> int:
    """Send parked letters back to their retry topic: print the plan, or do it with --apply.

    An exhausted letter has one more try; failing that, it is parked again. Exit code 3: done, and
    some of those chosen were refused.
    """
    if value is not None and len(asked["ids"]) != 1:
        raise UsageError("--value is for one letter: name it with --id")
    new = _read(value) if value is not None else None
    return _decide(asked, is_redrive=True, again=again, value=new)


@command.command("discard")
@_choosing
def discard_command(**asked: Any) -> int:
    """Give parked letters up for good: print the plan, or do it with --apply.

    Exit code 3: done, and some of those named by --id were refused.
    """
    return _decide(asked, is_redrive=False)


def _read(file: BinaryIO) -> bytes:
    try:
        value = file.read(VALUE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--value {file.name}: cannot be read: {error.strerror}") from None
    if len(value) > VALUE_BYTES:
        size = f"expected at most {VALUE_BYTES} bytes, found more"
        raise UsageError(f"--value {file.name}: {size}; a letter cannot be larger")
    return value


def _decide(asked: dict[str, Any], **more: Any) -> int:
    from shardpost.dead_letters import redrive
    from shardpost.dead_letters.letter_details import routes_of
    from shardpost.locks import exclusive
    from shardpost.settings import load

    if asked["is_real"] and not (asked["why"] or "").strip():
        raise UsageError("--apply needs --why: it is recorded with your name")
    settings = load()
    routes = routes_of(settings)
    filters = {name: asked[name] for name in ("origin", "error", "since", "until")}
    choice = Selection(frozenset(asked["ids"]), **filters)
    verdict = RedriveRequest(
        choice, who=person(), why=asked["why"] or "", now=datetime.now(UTC), **more
    )
    limits = redrive.RedriveLimits(asked["canary"], asked["rate"])
    plan = redrive.plan(settings, routes, verdict, limits)
    done = None
    if asked["is_real"]:
        with exclusive(settings, "parking_lot", "`letters redrive` or `discard`"):
            done = _carried_out(settings, routes, verdict, limits, plan)
    click.echo(
        json.dumps(_as_json(plan, verdict, done))
        if asked["as_json"]
        else _planned(plan, verdict, done)
    )
    return NEEDS_ATTENTION if plan.refused_count else DONE


def _carried_out(
    settings: "Settings",
    routes: "Routes",
    verdict: RedriveRequest,
    limits: "RedriveLimits",
    plan: "RedrivePlan",
) -> int:
    """Return how many letters have moved; what did not is refused in the plan."""
    from shardpost.dead_letters import redrive

    done = redrive.RedriveResult()
    try:
        redrive.carry_out(settings, routes, verdict, limits, done)
    except KeyboardInterrupt:
        raise ShardpostError(
            f"interrupted: {done.count} {verdict.kind}; the same again goes on with the others"
        ) from None
    for key, reason in done.refused.items():
        plan.refuse(key, reason)
    return done.count


def _as_json(plan: "RedrivePlan", verdict: RedriveRequest, done: int | None) -> dict[str, Any]:
    groups = [
        {"origin": origin, "error": error, "letters": count, "such_as": plan.samples[origin, error]}
        for (origin, error), count in plan.groups.most_common()
    ]
    refused = [{"letter_id": key, "reason": reason} for key, reason in plan.refused.items()]
    counts = {"letters": plan.count, "refused": plan.refused_count, "done": done}
    return {"decision": verdict.kind, **counts, "groups": groups, "refusals": refused}


def _planned(plan: "RedrivePlan", verdict: RedriveRequest, done: int | None) -> str:
    rows = [(*group, str(count), plan.samples[group]) for group, count in plan.groups.most_common()]
    lines = [text_table(("origin", "error", "letters", "such as"), rows)] if rows else []
    lines += [one_line(f"refused: {key}: {reason}") for key, reason in plan.refused.items()]
    if plan.refused_count > len(plan.refused):
        lines.append(f"and {plan.refused_count - len(plan.refused)} more are refused")
    if done is None:
        lines.append(f"{plan.count} would be {verdict.kind}; --apply does it")
    else:
        lines.append(f"{done} {verdict.kind}")
    return harmless("\n".join(lines))


def _is_asked(step: Step, asked: dict[str, Any]) -> bool:
    return (
        asked["state"] in (None, str(step.state))
        and asked["origin"] in (None, step.origin_topic)
        and asked["error"] in (None, step.fingerprint)
        and (asked["since"] is None or step.at >= asked["since"])
        and (asked["until"] is None or step.at < asked["until"])
    )


def _counted(found: list[Step]) -> str:
    if not found:
        return "no letters"

    def group(step: Step) -> tuple[str, str, str]:
        return str(step.state), step.origin_topic or "", step.fingerprint or ""

    rows = []
    for key, members in groupby(sorted(found, key=group), group):
        letters = list(members)
        oldest = min(letters, key=lambda step: step.at)
        rows.append((*key, str(len(letters)), _time(oldest.at), oldest.id))
    due = sum(step.due is not None and step.due <= datetime.now(UTC) for step in found)
    text = text_table(COUNTS, rows)
    return f"{text}\n{due} of those that wait are due" if due else text


def _in_words(found: dict[str, Any]) -> str:
    lines = [f"{found['letter_id']}: {found['state']}, {found['where']}"]
    lines += [one_line(f"  {name}: {value}") for name, value in found["headers"]]
    lines.append(_value(found))
    steps = [(step["at"], step["state"], _number(step["attempt"])) for step in found["life"]]
    lines.append(text_table(("at", "state", "attempt"), steps))
    for retry in found["retries"]:
        sent = f"sent {retry['at']}, attempt {retry['attempt']}, {retry['where']}"
        is_same = retry["value"] == found["value"]
        lines.append(f"{sent}: {'the same value' if is_same else _value(retry)}")
    if found["decisions"]:
        rows = [tuple(one[name] for name in DECIDED) for one in found["decisions"]]
        lines.append(text_table(("when", "decision", "who", "why"), rows))
    return harmless("\n".join(lines))


def _value(found: dict[str, Any]) -> str:
    if found["size"] is None:
        return "value: none"
    return f"value ({found['size']} bytes): {found['value']}"


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _swept(result: dict[str, Any]) -> str:
    names = ("retried", "parked", "dropped", "waiting", "held", "taken_in")
    counts: Iterable[str] = (f"{result[name]} {name.replace('_', ' ')}" for name in names)
    text = ", ".join(counts)
    held = ", ".join(result["held_errors"])
    return f"{text}\ntoo many letters of one error, held: {held}" if held else text


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
