"""Refusals that a shard could not decide about, by the answers of the whole run."""

import json
from typing import Any

from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.server_health import Refusal
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardReport
from shardpost.weekly_email.send_shard import settle_parts, settle_refusals
from tests.support.installed import installed
from tests.support.plain_ledger import fold
from tests.support.written_weeks import begin, freeze

WEEK = IsoWeek(2026, 47)
UNKNOWN = DeliveryState.UNKNOWN


def report(shard: int, *refused: str, accepted: int = 0, error: str | None = None) -> ShardReport:
    entries = [LedgerEntry(name, DeliveryState.FAILED, "<1@x>", "550 no") for name in refused]
    return ShardReport(
        shard,
        error=error,
        accepted=accepted,
        refused=len(refused),
        provisional=tuple(Refusal(entry, None).to_json() for entry in entries),
    )


def states(settings: Settings, shard: int) -> dict[str, str]:
    last = fold(ShardLedger(installed(settings).kafka, WEEK, shard).entries())
    return {client: str(entry.state) for client, entry in last.items()}


def test_of_three_clients_in_three_shards_two_may_have_bad_addresses(at: Settings) -> None:
    reports = [report(0, "a"), report(1, "b"), report(2, accepted=1)]
    settled = settle_refusals(installed(at), WEEK, reports)
    assert [(one.error, one.provisional) for one in settled] == [(None, ())] * 3
    assert (states(at, 0), states(at, 1)) == ({"a": "failed"}, {"b": "failed"})


def test_where_nothing_was_accepted_refused_clients_stay_open_and_the_server_is_quoted(
    at: Settings,
) -> None:
    settled = settle_refusals(installed(at), WEEK, [report(0, "a", "b"), report(1, "c"), report(2)])
    assert "refused 3 mails of this run and accepted 0" in str(settled[0].error)
    assert "c: 550 no" in str(settled[1].error)
    assert settled[2].error is None
    assert (states(at, 0), states(at, 1)) == ({}, {})


def test_many_small_shards_that_half_a_server_refused_stay_open(at: Settings) -> None:
    reports = [report(shard, *map(str, range(4)), accepted=4) for shard in range(3)]
    assert all(one.error for one in settle_refusals(installed(at), WEEK, reports))


def test_one_shard_that_was_stopped_leaves_the_refused_clients_of_all_open(
    at: Settings,
) -> None:
    reports = [report(0, "a"), report(1, accepted=1000), report(2, error="the server is silent")]
    settled = settle_refusals(installed(at), WEEK, reports)
    assert settled[0].error is not None
    assert states(at, 0) == {}


def test_a_client_that_another_run_has_dealt_with_since_keeps_its_state(at: Settings) -> None:
    other = Ledger(installed(at), WEEK, 0)
    other.open()
    other.write([LedgerEntry("a", DeliveryState.SENT, "<1@x>")])
    [settled] = settle_refusals(installed(at), WEEK, [report(0, "a", "b", accepted=9)])
    assert states(at, 0) == {"a": "sent", "b": "failed"}
    assert settled.error is None


def test_a_refused_mail_to_a_client_that_was_suppressed_is_no_longer_suppressed(
    at: Settings,
) -> None:
    ledger = Ledger(installed(at), WEEK, 0)
    ledger.open()
    ledger.write([LedgerEntry("a", DeliveryState.SUPPRESSED, "<1@x>")])
    entry = LedgerEntry("a", DeliveryState.FAILED, "<1@x>", "550 no")
    provisional = (Refusal(entry, DeliveryState.SUPPRESSED).to_json(),)
    settle_refusals(installed(at), WEEK, [ShardReport(0, refused=1, provisional=provisional)])
    assert states(at, 0) == {"a": "failed"}


def test_a_refused_resend_is_no_longer_unknown(at: Settings) -> None:
    ledger = Ledger(installed(at), WEEK, 0)
    ledger.open()
    ledger.write([LedgerEntry("a", UNKNOWN, "<1@x>")])
    entry = LedgerEntry("a", DeliveryState.FAILED, "<1@x>", "550 no", 1)
    provisional = (Refusal(entry, UNKNOWN).to_json(),)
    settle_refusals(installed(at), WEEK, [ShardReport(0, refused=1, provisional=provisional)])
    assert states(at, 0) == {"a": "failed"}


def settled_in_parts(settings: Settings, *reports: ShardReport) -> tuple[dict[str, Any], list[str]]:
    """Settle the refusals of a run with one job for each shard."""
    begin(settings, WEEK, WEEK.end)
    freeze(settings, WEEK, ["c0", "c1"], WEEK.end)
    made = [{"shards": [], "unknown": [], "answers": [vars(one)]} for one in reports]
    return settle_parts(installed(settings), WEEK, json.loads(json.dumps(made)), WEEK.end)


def test_of_a_run_in_parts_the_answers_of_all_decide(at: Settings) -> None:
    _, left_open = settled_in_parts(at, report(0, "a", "b"), report(1, "c", "d"))
    assert ["refused 4 mails of this run and accepted 0" in why for why in left_open] == [True] * 2
    assert (states(at, 0), states(at, 1)) == ({}, {})


def test_of_a_run_in_parts_the_counts_are_those_after_its_refusals_were_settled(
    at: Settings,
) -> None:
    document, left_open = settled_in_parts(at, report(0, accepted=1), report(1, "c1"))
    counts = [(one["open"], one["failed"]) for one in document["shards"]]
    assert (counts, left_open) == ([(1, 0), (0, 1)], [])
    assert document["causes"]["failed"][0]["clients"] == ["c1"]


def test_a_part_that_was_stopped_leaves_the_refused_clients_of_all_parts_open(
    at: Settings,
) -> None:
    paused = report(1, accepted=1000, error="2026-W47 was paused")
    _, left_open = settled_in_parts(at, report(0, "a"), paused)
    assert len(left_open) == 1
    assert "a: 550 no" in left_open[0]
    assert states(at, 0) == {}
