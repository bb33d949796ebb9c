"""Options and parameter types that several commands take."""

import os
from datetime import datetime
from getpass import getuser

import click

from shardpost.errors import UsageError
from shardpost.instants import parse_instant


class Key(click.ParamType[str]):
    """A Kafka key, in UTF-8."""

    name = "key"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the key; a shell may pass bytes that are not UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("expected UTF-8", param, ctx)
        return value


class Instant(click.ParamType[datetime]):
    """A time in ISO 8601; UTC if it has no time zone."""

    name = "time"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return an aware datetime."""
        try:
            return parse_instant(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


def person() -> str:
    """Return the user's login name, or its number where it has none, as in a container."""
    try:
        return getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def who(by: str | None) -> str:
    """Return who does something: the value of `--by`, or else the login name."""
    if by is None:
        return person()
    if not by.strip():
        raise UsageError("--by: expected a name, found none")
    return by


BY = click.option("--by", metavar="NAME", help="Who does this; by default the user's login name.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
SNAPSHOT = click.option(
    "--snapshot", "number", type=int, metavar="N", help="Snapshot to read; by default the newest."
)
