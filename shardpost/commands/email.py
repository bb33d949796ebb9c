"""`shardpost email`: the weekly e-mail of one ISO week, as the DAG sends it, and its look."""

import json
import logging
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands import console
from shardpost.errors import DONE, NEEDS_ATTENTION, UsageError, harmless, one_line, shown
from shardpost.installation import Installation, opened
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import counted

if TYPE_CHECKING:
    from shardpost.weekly_email.email_job import EmailRequest
    from shardpost.weekly_email.mail_preview import MailPreview


log = logging.getLogger(__name__)


def counts_text(document: Mapping[str, Any]) -> str:
    """Return the counts of a document of week_report.py: per shard, their sum, and remarks."""
    from shardpost.weekly_email.model.week_report import COLUMNS

    shards = document["shards"]
    total = ["all", *(sum(shard[name] for shard in shards) for name in COLUMNS[1:])]
    rows = [*([shard[name] for name in COLUMNS] for shard in shards), total]
    table = console.text_table(COLUMNS, rows)
    return "\n".join([table, *_remarks(document)])


def _remarks(document: Mapping[str, Any]) -> Iterator[str]:
    from shardpost.weekly_email.model.week_report import failed_line, late_line

    week = document["week"]
    if failed := failed_line(document):
        yield failed
    if waiting := document.get("without_contact"):
        yield (
            f"open: {waiting} without a usable contact yet, which may still arrive before the"
            f" freeze: `shardpost emails --week {week} --state open` lists them"
        )
    if (late := document.get("late")) and late["clients"]:
        yield late_line(late)
    if closed := document.get("closed"):
        yield closed
    if paused := document.get("paused"):
        yield (
            f"paused since {paused['at'][:16].replace('T', ' ')} UTC by {one_line(paused['who'])}"
            f" ({one_line(paused['why'])}): `shardpost emails resume --week {week} --why …`"
        )
    if erased := document.get("audience_erased"):
        yield (
            f"the audience of {week}, {counted(erased['clients'], 'client')}, was erased on"
            f" {erased['at'][:10]} (SHARDPOST_AUDIENCE_DAYS): the clients not mailed yet are no"
            " longer known, and the week can no longer be mailed"
        )
    if unknown := document["unknown"]:
        yield (
            f"delivery unknown: {', '.join(map(shown, unknown))}\n"
            "check the mail server's log and record the result with `shardpost emails resolve`, or"
            " send them again, at most once and with the same Message-ID, with `shardpost email"
            " --on-unknown resend`"
        )


@click.group(invoke_without_command=True)
@click.option("--week", metavar="WEEK", help="ISO week, such as 2026-W47. Required.")
@click.option("--shards", metavar="LIST", help="Only these shards, such as 0-3 or 0,2,5-7.")
@click.option(
    "--dry-run", is_flag=True, help="Print what would happen to each client; change nothing."
)
@click.option(
    "--early", is_flag=True, help="Mail a week that has not ended, as of now; freezes nothing."
)
@click.option(
    "--again",
    type=click.Choice(["FAILED", "SUPPRESSED"], case_sensitive=False),
    help="Also mail clients that FAILED before, at their current addresses; or clients that were"
    " SUPPRESSED as not subscribed, and are subscribed now.",
)
@click.option(
    "--on-unknown",
    type=click.Choice(["hold", "resend"]),
    help="What to do about unknown deliveries: hold them for a person to decide, or resend them"
    " once more, with the same Message-ID; default: SHARDPOST_ON_UNKNOWN.",
)
@console.COUNTRY_CHANGED
@console.ACCEPT_DROP
@console.TAKE_OVER
@console.AS_JSON
@click.pass_context
def email_command(
    ctx: click.Context, /, week: str | None, dry_run: bool, take_over: bool, **options: Any
) -> int:
    """Send the weekly e-mail of one ISO week: once to each client, however often it is run.

    `shardpost emails` reports what was delivered. Uses the newest snapshot and does not compact.
    Exit code 3: done, but some deliveries are unknown (`shardpost emails` lists them), or too many
    clients failed or are not subscribed; or nothing is frozen, since recipients fall by more than
    SHARDPOST_MAX_DROP, or there are none; or the week is paused.
    """
    if (subcommand := ctx.invoked_subcommand) is not None:
        if dry_run or take_over or console.wants_json() or week or any(options.values()):
            raise UsageError(f"put the options of `email {subcommand}` after its name")
        return DONE
    if week is None:
        raise click.MissingParameter(ctx=ctx, param=ctx.command.params[0])
    from shardpost.locks import refused_runs
    from shardpost.topics import guards
    from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest, Mode
    from shardpost.weekly_email.prepared_week import preview_week
    from shardpost.weekly_email.week_state import WeekState

    mode = Mode.DRY_RUN if dry_run else Mode.SEND
    request = EmailRequest(IsoWeek.parse(week), datetime.now(UTC), mode, **options)
    installation = opened()
    if take_over and dry_run:
        raise UsageError("--take-over cannot be used with --dry-run, which takes nothing over")
    if take_over:
        guards.take_topics(installation, take_over=True)
    request.week.as_of(request.now, early=request.early)  # a wrong week is not noted
    log.info("weekly_email %s: checking its snapshot and its ledger", request.week)
    with (
        refused_runs.noting(installation.files, WEEKLY_EMAIL.name)
        if request.is_real
        else nullcontext()
    ):
        # Before Java starts, which takes long.
        preview_week(installation, request, WeekState(installation, request.week))
    return (_dry_run if dry_run else _send)(request)


def _send(request: "EmailRequest") -> int:
    from shardpost.spark.submit import submit
    from shardpost.weekly_email.email_job import WEEKLY_EMAIL

    code, result = submit(opened(), WEEKLY_EMAIL, request)
    if result is not None:
        console.print_document(result, lambda: counts_text(result))
    return code


def _dry_run(request: "EmailRequest") -> int:
    from shardpost.spark.job import job_folder
    from shardpost.spark.submit import submit
    from shardpost.weekly_email.dry_runs import text_lines
    from shardpost.weekly_email.email_job import WEEKLY_EMAIL

    with job_folder() as folder:
        code, result = submit(opened(), WEEKLY_EMAIL, replace(request, recipients=folder))
        if code not in (DONE, NEEDS_ATTENTION) or result is None:
            return code
        for text in (_dry_run_document if console.wants_json() else text_lines)(result, folder):
            click.echo(text, nl=False)
    return code


def _dry_run_document(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield one JSON document piece by piece: lists of a million need not be in memory."""
    from shardpost.weekly_email.dry_runs import DryRunList, lines

    yield json.dumps(result)[:-1]
    for kind in DryRunList:
        yield f', "{kind}": ['
        for number, line in enumerate(lines(folder, kind)):
            yield f"{',' if number else ''}\n{json.dumps(line)}"
        yield "]"
    yield "}\n"


@email_command.command("preview")
@click.argument("client", type=console.KEY)
@console.WEEK
@click.option("--open", "is_opened", is_flag=True, help="Show the HTML in a browser.")
@console.AS_JSON
def preview_command(client: str, week: str, is_opened: bool) -> None:
    """Print one client's e-mail of a week: as it was sent, or as a run would send it now.

    Headers and text; `--json` has the HTML as well. Nothing is sent, and nothing is written.
    """
    found = _preview(opened(), client, week, datetime.now(UTC))
    if console.wants_json():
        console.print_document(found, str)
    else:
        click.echo(harmless("\n".join(_lines(found))))
    if is_opened:
        # Only this user can read the file.
        with tempfile.NamedTemporaryFile(
            "w", prefix="shardpost-mail-", suffix=".html", delete=False, encoding="utf-8"
        ) as file:
            file.write(found.html)
        is_shown = webbrowser.open(Path(file.name).as_uri())
        where = "opened" if is_shown else "no browser found: the HTML is in"
        click.echo(f"{where} {file.name}", err=True)


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
    yield f"# {found.week}, from {of}; nothing is sent now"
    if found.remark:
        yield f"# {one_line(found.remark)}"
    for name, value in found.headers.items():
        yield f"{name}: {one_line(value)}"
    yield ""
    yield found.text.rstrip("\n")


@email_command.command("test")
@click.argument("client", type=console.KEY)
@click.option(
    "--to", required=True, metavar="ADDRESS", help="The recipient, instead of the client."
)
@click.option("--week", metavar="WEEK", help="ISO week; by default the last ended week.")
@console.AS_JSON
def test_command(client: str, to: str, week: str | None) -> None:
    """Send the e-mail that `email preview` prints to an address of yours, marked as a test.

    It is not in the ledger, and its link unsubscribes nobody.
    """
    from shardpost.weekly_email.mail_preview import send_test

    installation, now = opened(), datetime.now(UTC)
    chosen = str(IsoWeek.last_ended(now)) if week is None else week
    sent = send_test(installation, _preview(installation, client, chosen, now), to, now)
    console.print_document(sent, lambda: ["sent to {to}: {subject} ({message_id})".format(**sent)])


@email_command.group("templates")
def templates_command() -> None:
    """Write the e-mail templates into a folder, for editing."""


@templates_command.command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
def init_command(folder: Path | None) -> None:
    """Write the shipped templates into a folder, for editing; nothing is overwritten.

    The default is the folder of SHARDPOST_MAIL_TEMPLATES.
    """
    from shardpost.weekly_email.own_templates import NAME, write_shipped

    chosen = folder or opened().settings.mail_templates
    if chosen is None:
        raise UsageError(f"expected a folder or the setting {NAME}, found neither")
    for path in write_shipped(chosen):
        click.echo(one_line(str(path)))
    if chosen.absolute() != opened().settings.mail_templates:
        click.echo(f"set {NAME}={chosen.absolute()}", err=True)
