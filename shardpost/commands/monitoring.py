"""`shardpost doctor`, `alerts` and `metrics`: whether all is well."""

from datetime import UTC, datetime

import click

from shardpost.commands.console import AS_JSON, print_document
from shardpost.errors import COULD_NOT, DONE, one_line
from shardpost.settings import load
from shardpost.watch.model.doctor_finding import DoctorFinding, exit_code


@click.command()
@AS_JSON
def doctor_command(as_json: bool) -> int:
    """Check this machine, the settings, Kafka, the tables, the mail server and Airflow.

    Starts nothing and changes nothing. Exit code 3 if something needs attention.
    """
    from shardpost.watch.doctor import examine

    found = examine(load, datetime.now(UTC))
    print_document(found, lambda: _findings_text(found), as_json=as_json)
    return exit_code(found)


def _findings_text(found: list[DoctorFinding]) -> str:
    width = max(len(one.check) for one in found)
    return "\n".join(line for one in found for line in _finding_lines(one, width))


def _finding_lines(one: DoctorFinding, width: int) -> list[str]:
    """Return a line with what was found, and below it what was expected, and the fix."""
    more = {"expected": one.expected, "fix": one.cure}
    indented = " " * (9 + width)
    return [
        f"{one.state:<7}  {one.check:<{width}}  {one_line(one.found)}",
        *(f"{indented}  {name}: {one_line(text)}" for name, text in more.items() if text),
    ]


NO_CHANNEL = (
    "no alert channel: alerts are only appended to alerts.log in SHARDPOST_HOME; set"
    " SHARDPOST_ALERTS to URLs of Apprise, separated by blanks"
)


@click.group()
def alerts_command() -> None:
    """Try the alert channels of SHARDPOST_ALERTS."""


@alerts_command.command("test")
@AS_JSON
def test_command(as_json: bool) -> int:
    """Send a test alert to every channel, and print the outcome.

    Exit code 1 if a channel failed. Secrets of the URLs are not shown.
    """
    from shardpost.alerts.channels import channels, send_all
    from shardpost.alerts.model.alert import Message

    text = f"This is a test, sent at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC. Nothing is wrong."
    message = Message("Shardpost: test alert", text, is_good=True)
    deliveries = send_all(dict.fromkeys(channels(load()), message))
    print_document(
        [vars(one) for one in deliveries],
        lambda: "\n".join(map(str, deliveries)) or NO_CHANNEL,
        as_json=as_json,
    )
    return COULD_NOT if any(one.problem for one in deliveries) else DONE


@click.command()
def metrics_command() -> int:
    """Measure everything once and print it as OpenMetrics.

    What cannot be measured is left out: shardpost_source_up is 0 then.
    """
    from shardpost.watch.watch import metrics_text

    click.echo(metrics_text(load(), datetime.now(UTC)), nl=False)
    return 0
