"""The refusals that no shard could decide about alone, by the answers that all of a run had.

A shard of three clients, two of which are refused, cannot tell bad addresses from a broken server;
the other shards can.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.refusals import Refusal, RefusalLimits, open_clients_error
from shardpost.weekly_email.model.shard_counts import ShardReport


def settle_refusals(
    settings: Settings, week: IsoWeek, reports: Sequence[ShardReport]
) -> list[ShardReport]:
    """Return the reports with each provisional refusal decided: `failed`, or left open.

    One shard that was stopped is enough to leave them all open.
    """
    refused = sum(report.refused for report in reports)
    accepted = sum(report.accepted for report in reports)
    is_proven = not any(report.error for report in reports)
    is_final = is_proven and RefusalLimits.of(settings).proves_server(refused, accepted)
    settled = []
    for report in reports:
        refusals = [Refusal.from_json(text) for text in report.provisional]
        if refusals and is_final:
            settled.append(_fail(settings, week, report, refusals))
        elif refusals:
            error = open_clients_error(refusals, refused, accepted)
            settled.append(replace(report, error=error, provisional=()))
        else:
            settled.append(report)
    return settled


def _fail(
    settings: Settings, week: IsoWeek, report: ShardReport, refusals: Sequence[Refusal]
) -> ShardReport:
    """Write `failed` for the clients whose state is still that of before their refusal."""
    try:
        with closing(Ledger(settings, week, report.shard)) as ledger:
            states = ledger.open().states([one.entry.client for one in refusals])
            pairs = zip(refusals, states, strict=True)
            failed = [one for one, state in pairs if state is one.before]
            ledger.write([one.entry for one in failed])
    except ShardpostError as error:
        return replace(report, error=str(error), provisional=())
    return report.with_failed(failed)
