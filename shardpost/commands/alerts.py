"""`shardpost alerts`: whether alerts arrive."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON
from shardpost.errors import COULD_NOT, DONE
from shardpost.settings import load

NO_CHANNEL = (
    "no alert channel: alerts are only appended to alerts.log in SHARDPOST_HOME; set"
    " SHARDPOST_ALERTS to URLs of Apprise, separated by blanks"
)


@click.group()
def command() -> None:
    """Try the alert channels of SHARDPOST_ALERTS."""


@command.command("test")
@AS_JSON
def test_command(as_json: bool) -> int:
    """Send a test alert to every channel, and print what became of it.

    Exit code 1 if a channel did not take it. Secrets of the URLs are not shown.
    """
    from shardpost.alerts.channels import channels, send_all
    from shardpost.alerts.model.alert import Message

    found = channels(load())
    text = f"This is a test, sent at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC. Nothing is wrong."
    deliveries = send_all(found, Message("Shardpost: test alert", text, is_good=True))
    if as_json:
        click.echo(json.dumps([vars(one) for one in deliveries]))
    else:
        click.echo("\n".join(map(str, deliveries)) or NO_CHANNEL)
    return COULD_NOT if any(one.problem for one in deliveries) else DONE
