"""Whom records concern that came after a week was frozen, by tables written without a JVM."""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, strategies
from hypothesis import settings as of_hypothesis

from shardpost.delta import snapshots
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from shardpost.watch.sources import collect_emails
from shardpost.weekly_email.delivery_status import find_late
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, erased_id
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import late_document
from tests.support.command_line import CommandLine
from tests.support.histories import (
    START,
    Batch,
    History,
    Record,
    close,
    country_of,
    holders_of,
    latest,
    put,
    reject,
    retry,
    until,
    write,
)
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.random_histories import LAYERED_BATCHES
from tests.support.written_weeks import begin, freeze, mailed_home

WEEK = IsoWeek.of(START)
AFTER = 7 * 24  # the hour of START at which the week ends
AT = WEEK.end + timedelta(hours=8)

Positions = dict[str, list[dict[str, str | None]]]


def mailed(history: History, as_of: datetime) -> Positions:
    """Return what a freeze stores of each client."""
    there = latest(record for record in history.positions if record.timestamp < as_of)
    return {
        client: [
            {"position": id_, "ticker": "AAPL", "amount": "100", "exchange": there[id_].exchange}
            for id_ in ids
        ]
        for client, ids in holders_of(history, as_of).items()
    }


def frozen(at: Settings, history: History, as_of: datetime = WEEK.end) -> FrozenWeek:
    """Freeze the week as of that time, of the first snapshot."""
    positions = mailed(until(history, 1), as_of)
    return freeze(at, WEEK, positions, AT, positions=positions, as_of=as_of)


COUNTRIES = [country_of("NASDAQ", "US"), country_of("NYSE", "US"), country_of("LON", "GB")]
FIRST = Batch(
    [
        *(put(str(n), f"c{n}", "NASDAQ") for n in range(6)),
        *(put("x", "z1", "LON"), reject("bad"), put("again", "c5", "NASDAQ")),
    ],
    COUNTRIES,
)


@pytest.mark.parametrize(
    ("late", "missed", "changed"),
    [
        ([], [], []),
        # Of after the week's end, or undecodable, or the same again: it concerns nobody.
        ([put("7", "new", "NASDAQ", AFTER), put("1", "new", "NASDAQ", AFTER)], [], []),
        ([reject("8", 1), put("2", "c2", "NASDAQ", 3), put("x", "z2", "LON", 3)], [], []),
        ([put("7", "new", "NASDAQ", AFTER - 1)], ["new"], []),
        ([put("7", "c1", "NASDAQ", 5), close("2", 5)], [], ["c1", "c2"]),
        ([put("3", "new", "NASDAQ", 5), put("4", "c4", "NYSE", 5)], ["new"], ["c3", "c4"]),
        ([retry(put("bad", "new", "NASDAQ", 2), 0)], ["new"], []),
    ],
)
def test_a_late_record_concerns_who_would_be_mailed_otherwise(
    late: list[Record], missed: list[str], changed: list[str], at: Settings
) -> None:
    history = write(at, [FIRST, Batch(late)])
    assert find_late(installed(at), frozen(at, history)) == late_document(missed, changed)


def test_a_late_country_concerns_everybody_who_holds_there(at: Settings) -> None:
    history = write(at, [FIRST, Batch([], [country_of("LON", "US", 1)])])
    assert find_late(installed(at), frozen(at, history)) == late_document(["z1"])


def test_it_is_the_country_of_the_freeze_that_counts(at: Settings) -> None:
    history = write(at, [FIRST, Batch([put("7", "new", "LON", 5)])])
    week = frozen(at, history)
    snapshots.commit(
        installed(at).tables,
        replace(snapshots.current(installed(at).tables), number=3, rule=Rule("GB")),
    )
    assert find_late(installed(at), week) == late_document()


def test_before_the_next_snapshot_nothing_is_late_and_later_it_may_be_unknown(
    at: Settings,
) -> None:
    history = write(at, [FIRST])
    week = frozen(at, history)
    assert find_late(installed(at), week) == late_document()
    pruned = replace(
        snapshots.current(installed(at).tables), number=2, history_from=WEEK.end + timedelta(1)
    )
    snapshots.commit(installed(at).tables, pruned)
    assert find_late(installed(at), week) is None
    assert find_late(installed(at), replace(week, audience_erased_at=AT)) is None


def test_a_client_that_was_erased_is_not_missed(at: Settings) -> None:
    history = write(at, [FIRST, Batch([put("7", "c1", "NASDAQ", 5), put("8", "c2", "NASDAQ", 5)])])
    positions = mailed(until(history, 1), WEEK.end)
    del positions["c1"]
    week = freeze(at, WEEK, positions, AT, positions=positions)
    assert find_late(installed(at), week) == late_document(["c1"], ["c2"])
    with closing(Ledger(installed(at), WEEK, partition_of("c1", 2))) as ledger:
        ledger.open()
        ledger.write([LedgerEntry(erased_id("c1"), DeliveryState.SENT, is_erased=True)])
    assert find_late(installed(at), week) == late_document([], ["c2"])


def test_emails_shows_them_and_the_watch_tells_people_from_a_share_on(
    at: Settings, shardpost: CommandLine
) -> None:
    late = [put(f"n{n}", f"new{n}", "NASDAQ", 5) for n in range(6)]
    history = write(at, [FIRST, Batch(late)])
    begin(at, WEEK, AT)
    frozen(at, history)
    names = [f"new{n}" for n in range(6)]
    document = shardpost.json("emails", "--week", str(WEEK))
    assert document["late"] == {"missed": 6, "changed": 0, "clients": names}
    said = shardpost("emails", "--week", str(WEEK))
    assert "late records: according to records read after the freeze, 6 more clients held" in said
    found = collect_emails(installed(at), AT)
    assert [one.value for one in found.measures if one.name == "emails_late"] == [6]
    [one] = found.conditions
    assert (one.rule, one.subject) == ("emails-late", str(WEEK))
    assert "exceeds SHARDPOST_MAIL_FAILED_SHARE of 6 clients" in one.text
    more = at.model_copy(update={"mail_failed_share": 1.0})
    assert collect_emails(installed(more), AT).conditions == []


@of_hypothesis(
    max_examples=up_to(60, quick=5), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(LAYERED_BATCHES, strategies.integers(0, 10))
def test_it_is_the_difference_of_two_folds(batches: Sequence[Batch], hours: int) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        mailed_home(Path(home), (), ()) as kafka,
    ):
        at, as_of = kafka.settings, START + timedelta(hours=hours)
        history = write(at, batches)
        then, now = (mailed(read, as_of) for read in (until(history, 1), history))
        found = find_late(installed(at), frozen(at, history, as_of))
        assert found == late_document(
            now.keys() - then.keys(),
            (client for client in then if then[client] != now.get(client)),
        )
