"""`shardpost doctor`, `alerts` and `metrics`: whether all is well."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from shardpost.commands.console import AS_JSON, BY, DURATION, KEY, NEEDED_WHY, print_document
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, one_line
from shardpost.installation import opened
from shardpost.watch.model.doctor_finding import DoctorFinding
from shardpost.wording import duration_text

if TYPE_CHECKING:
    from shardpost.alerts.model.alert import Firing


@click.command()
@AS_JSON
def doctor_command() -> int:
    """Check this machine, the settings, Kafka, the tables, the mail server and Airflow.

    Starts nothing and changes nothing. Exit code 3 if something needs attention.
    """
    from shardpost.watch.doctor import examine

    found = examine(opened, datetime.now(UTC))
    width = max((len(one.check) for one in found), default=0)
    lines = [line for one in found for line in _finding_lines(one, width)]
    print_document(found, lambda: "\n".join(lines))
    return NEEDS_ATTENTION if any(one.needs_attention for one in found) else DONE


def _finding_lines(one: DoctorFinding, width: int) -> list[str]:
    more = {"expected": one.expected, "fix": one.cure}
    indented = " " * (9 + width)
    return [
        f"{one.state:<7}  {one.check:<{width}}  {one_line(one.found)}",
        *(f"{indented}  {name}: {one_line(text)}" for name, text in more.items() if text),
    ]


NO_CHANNEL = (
    "no alert channel: alerts are only appended to alerts.log (docs/watching.md); set "
    "SHARDPOST_ALERTS to Apprise URLs, separated by blanks"
)


@click.group()
def alerts_command() -> None:
    """List what is firing and who was notified, silence it, test the channels."""


@alerts_command.command("test")
@AS_JSON
def test_command() -> int:
    """Send a test alert to every channel, and print the outcome.

    Exit code 1 if a channel failed. Secrets in the URLs are not shown.
    """
    from shardpost.alerts.channels import channels, send_all
    from shardpost.alerts.model.alert import Message

    text = f"This is a test, sent at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC. Nothing is wrong."
    message = Message("Shardpost: test alert", text, is_good=True)
    deliveries = send_all(dict.fromkeys(channels(opened()), message))
    print_document(
        [vars(one) for one in deliveries], lambda: "\n".join(map(str, deliveries)) or NO_CHANNEL
    )
    return COULD_NOT if any(one.problem for one in deliveries) else DONE


@alerts_command.command("list")
@AS_JSON
def list_command() -> None:
    """List what is firing: since when, which channels were notified, and until when it is silenced.

    From the last run of `watch_kafka`, and from failed tasks. Secrets of channels are not shown.
    """
    from shardpost.alerts.history import list_firing

    found, now = list_firing(opened().tables), datetime.now(UTC)
    print_document(
        found,
        lambda: [line for one in found for line in _firing_lines(one, now)] or "nothing is firing",
    )


def _firing_lines(one: "Firing", now: datetime) -> Iterator[str]:
    """Yield its key, severity and age, and below them the finding, channels and silences."""
    from shardpost.alerts.model.alert import EVENT

    began = "happened" if one.condition.source == EVENT else "since"
    since = f"{began} {one.since:%Y-%m-%d %H:%M} UTC ({duration_text(now - one.since)})"
    over = f"; ended {one.ended_at:%Y-%m-%d %H:%M} UTC" if one.ended_at else ""
    yield f"{one.condition.name}  ({one.condition.severity}) {since}{over}"
    yield f"    {one.condition.text}"
    yield f"    notified: {', '.join(one.told) or 'nobody yet'}"
    if one.is_silenced(now):
        by = f" by {one.silenced_by}" if one.silenced_by else ""
        yield f"    silenced until {one.silenced_until:%Y-%m-%d %H:%M} UTC{by}: {one.silenced_why}"


@alerts_command.command("silence")
@click.argument("key", metavar="KEY", type=KEY)
@click.option(
    "--for", "duration", required=True, type=DURATION, metavar="TIME", help="30m, 2h, 1d or 4w."
)
@NEEDED_WHY
@BY
def silence_command(key: str, duration: timedelta, why: str, by: str) -> None:
    """Silence what is firing under KEY for a time.

    Meanwhile channels are notified only when it ends or becomes worse; afterwards, if it still
    fires, they are notified again. `shardpost alerts list` prints KEY and the silence. `decisions`
    records who silenced it, and why.
    """
    _silence(key, duration, by, why)


@alerts_command.command("unsilence")
@click.argument("key", metavar="KEY", type=KEY)
@NEEDED_WHY
@BY
def unsilence_command(key: str, why: str, by: str) -> None:
    """End a silence: what still fires under KEY is sent again at the next check."""
    _silence(key, timedelta(), by, why)


def _silence(key: str, duration: timedelta, by: str, why: str) -> None:
    from shardpost.alerts.model.alert import Silence
    from shardpost.alerts.notifier import silence

    now = datetime.now(UTC)
    click.echo(silence(opened(), key, Silence(now + duration, by, why), now))


@click.command()
def metrics_command() -> None:
    """Measure everything once and print it as OpenMetrics.

    What cannot be measured is left out: shardpost_source_up is 0 then.
    """
    from shardpost.watch.watch import collect_all, open_metrics

    found = collect_all(opened(), datetime.now(UTC))
    click.echo(open_metrics(found.measures), nl=False)
