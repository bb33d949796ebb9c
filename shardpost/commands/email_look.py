"""`shardpost email preview`, `test` and `templates init`: the look of the weekly e-mail."""

import tempfile
import webbrowser
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardpost.commands.console import AS_JSON, KEY, WEEK, print_document
from shardpost.errors import DONE, UsageError, harmless, one_line
from shardpost.installation import Installation, opened
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.mail_preview import MailPreview


@click.command("preview")
@click.argument("client", type=KEY)
@WEEK
@click.option("--open", "is_opened", is_flag=True, help="Show the HTML in a browser.")
@AS_JSON
def preview_command(client: str, week: str, is_opened: bool, as_json: bool) -> int:
    """Print one client's e-mail of a week: as it was sent, or as a run of now would send it.

    Headers and text; `--json` has the HTML as well. Nothing is sent, and nothing is written.
    """
    found = _preview(opened(), client, week, datetime.now(UTC))
    if as_json:
        print_document(found, str, as_json=True)
    else:
        click.echo(harmless("\n".join(_lines(found))))
    if is_opened:
        _open(found.html)
    return DONE


def _preview(installation: Installation, client: str, week: str, now: datetime) -> "MailPreview":
    from shardpost.weekly_email.mail_preview import preview
    from shardpost.weekly_email.week_status import rows_of_begun

    iso_week = IsoWeek.parse(week)
    rows = rows_of_begun(installation, iso_week, client, now)
    return preview(installation, client, iso_week, rows, now=now)


def _lines(found: "MailPreview") -> Iterator[str]:
    of = "its frozen audience" if found.is_frozen else "the newest snapshot, not frozen yet"
    if since := found.look_since:
        templates = f"templates since {since:%Y-%m-%d %H:%M} UTC"
        of = f"snapshot {found.snapshot}, as it was sent ({templates})"
    yield f"# {found.week}, of {of}; nothing is sent now"
    if found.remark:
        yield f"# {one_line(found.remark)}"
    for name, value in found.headers.items():
        yield f"{name}: {one_line(value)}"
    yield ""
    yield found.text.rstrip("\n")


def _open(html: str) -> None:
    """Write HTML into a file that only this user can read, and open it."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="shardpost-mail-", suffix=".html", delete=False, encoding="utf-8"
    ) as file:
        file.write(html)
    is_shown = webbrowser.open(Path(file.name).as_uri())
    click.echo(
        f"{'opened' if is_shown else 'no browser found: the HTML is in'} {file.name}", err=True
    )


@click.command("test")
@click.argument("client", type=KEY)
@click.option("--to", required=True, metavar="ADDRESS", help="Who gets it, in place of the client.")
@click.option("--week", metavar="WEEK", help="ISO week; by default the last one that ended.")
@AS_JSON
def test_command(client: str, to: str, week: str | None, as_json: bool) -> int:
    """Send the e-mail that `email preview` prints to an address of yours, marked as a test.

    Nothing of it is in the ledger, and its link unsubscribes nobody.
    """
    from shardpost.weekly_email.mail_preview import send_test

    installation, now = opened(), datetime.now(UTC)
    chosen = str(IsoWeek.last_ended(now)) if week is None else week
    sent = send_test(installation, _preview(installation, client, chosen, now), to, now)
    print_document(
        sent, lambda: [f"sent to {sent.to}: {sent.subject} ({sent.message_id})"], as_json=as_json
    )
    return DONE


@click.group("templates")
def templates_command() -> None:
    """Write the templates of the e-mail, to be changed."""


@templates_command.command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
def init_command(folder: Path | None) -> int:
    """Write the shipped templates into a folder, to be changed; nothing is overwritten.

    By default into that of SHARDPOST_MAIL_TEMPLATES.
    """
    from shardpost.weekly_email.own_templates import NAME, write_shipped

    chosen = folder or opened().settings.mail_templates
    if chosen is None:
        raise UsageError(f"expected a folder, or the setting {NAME}: found none of them")
    for path in write_shipped(chosen):
        click.echo(one_line(str(path)))
    if chosen.absolute() != opened().settings.mail_templates:
        click.echo(f"set {NAME}={chosen.absolute()}", err=True)
    return DONE


COMMANDS = (preview_command, test_command, templates_command)
