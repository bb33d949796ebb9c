"""`shardpost email`: the weekly e-mail of one ISO week, as the DAG weekly_email sends it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from shardpost.commands.options import AS_JSON
from shardpost.errors import BAD_USAGE, COULD_NOT, DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.settings import load
from shardpost.weekly_email.model.iso_week import IsoWeek

COUNTS = ("shard", "sent", "failed", "unknown", "suppressed", "open")


@click.command()
@click.option("--week", required=True, metavar="WEEK", help="ISO week, such as 2026-W47.")
@click.option("--shards", metavar="LIST", help="Only these, such as 0-3 or 0,2,5-7.")
@click.option("--dry-run", is_flag=True, help="Print who would get what; touch nothing.")
@click.option("--early", is_flag=True, help="Mail a week that has not ended, as of now.")
@click.option("--again", type=click.Choice(["FAILED"]), help="Mail those again that had failed.")
@click.option(
    "--on-unknown",
    type=click.Choice(["hold", "resend"]),
    help="What to do about mails that may have been sent; else as SHARDPOST_ON_UNKNOWN says.",
)
@AS_JSON
def command(**asked: Any) -> int:
    """Send the weekly e-mail of one ISO week: to each client once, whatever happened before.

    It is of the newest snapshot and does not compact. Exit code 3: done, and there are deliveries
    of which nobody can say whether they happened (`shardpost emails` lists them).
    """
    now = datetime.now(UTC)
    week = IsoWeek.parse(asked["week"])
    week.as_of(now, early=asked["early"])
    arguments = ["--week", str(week), "--now", now.isoformat(), *_passed_on(asked)]
    return (_dry_run if asked["dry_run"] else _send)(arguments, as_json=asked["as_json"])


def _passed_on(asked: dict[str, Any]) -> Iterator[str]:
    for name in ("shards", "again", "on_unknown"):
        if asked[name] is not None:
            yield from (f"--{name.replace('_', '-')}", asked[name])
    if asked["early"]:
        yield "--early"


def _send(arguments: list[str], *, as_json: bool) -> int:
    from shardpost.spark.submit import submit
    from shardpost.weekly_email.job import WEEKLY_EMAIL

    code, result = submit(load(), WEEKLY_EMAIL, arguments)
    if result is not None:
        click.echo(json.dumps(result) if as_json else counts_in_words(result))
    return _known(code) or (DONE if result is not None else COULD_NOT)


def _known(code: int) -> int:
    """Return one of the contract's exit codes."""
    if code not in (DONE, COULD_NOT, BAD_USAGE, NEEDS_ATTENTION):
        raise ShardpostError(f"the Spark job was ended from outside (code {code}): run again")
    return code


def _dry_run(arguments: list[str], *, as_json: bool) -> int:
    from shardpost.spark.job_folder import job_folder
    from shardpost.spark.submit import submit
    from shardpost.weekly_email.job import WEEKLY_EMAIL

    with job_folder() as folder:
        recipients = folder / "recipients"
        more = ["--dry-run", "--recipients", str(recipients)]
        code, result = submit(load(), WEEKLY_EMAIL, [*arguments, *more])
        if code not in (DONE, NEEDS_ATTENTION) or result is None:
            return _known(code) or COULD_NOT
        with recipients.open() as lines:
            for text in _document(result, lines) if as_json else _in_words(lines):
                click.echo(text, nl=False)
    return code


def _document(result: dict[str, Any], lines: Iterator[str]) -> Iterator[str]:
    """Yield one JSON document piece by piece: a list of a million need not be in memory."""
    yield json.dumps(result)[:-1] + ', "recipients": ['
    for number, line in enumerate(lines):
        yield f"{',' if number else ''}\n{line.rstrip()}"
    yield "]}\n"


def _in_words(lines: Iterator[str]) -> Iterator[str]:
    count = 0
    for line in lines:
        to = json.loads(line)
        count += 1
        yield f"{to['client']} <{to['email']}>, shard {to['shard']}: {', '.join(to['positions'])}\n"
    yield f"{count} would get an e-mail; nothing was sent\n"


def counts_in_words(result: dict[str, Any]) -> str:
    """Return the counts per shard, their sum, and who is in doubt."""
    from shardpost.commands.text_table import text_table

    found = result["shards"]
    total = ["all", *(sum(row[name] for row in found) for name in COUNTS[1:])]
    listed = [[row[name] for name in COUNTS] for row in found]
    table = text_table(COUNTS, [[str(cell) for cell in row] for row in (*listed, total)])
    unknown = result["unknown"]
    if not unknown:
        return table
    return (
        f"{table}\nsent or not, nobody can say: {', '.join(unknown)}\n"
        "ask the mail server's log; `shardpost email --on-unknown resend` sends them again, with"
        " the same Message-ID"
    )
