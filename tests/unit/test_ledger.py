"""The ledger's records, their fold, and whom a run mails."""

from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from sqlite3 import Connection, connect

from hypothesis import given
from hypothesis import strategies as st

from shardpost.kafka.records import Headers, Record
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.ledger_projection import LEDGER, counts_of, listed, open_among
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    decode,
    erased_id,
    ledger_id,
)
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.plain_ledger import fold

WEEK = IsoWeek(2026, 47)

ENTRIES = st.lists(
    st.builds(
        LedgerEntry,
        st.sampled_from(["a", "b", "c", "größe", "x/y"]),
        st.sampled_from([None, *DeliveryState]),
    )
)


def resent(entry: LedgerEntry) -> LedgerEntry:
    return replace(entry, resends=1) if entry.state else entry


@given(ENTRIES)
def test_an_entry_reads_back_as_it_was_written(entries: list[LedgerEntry]) -> None:
    for entry in [*entries, *map(resent, entries)]:
        assert decode(entry.id.key(WEEK), entry.value(), WEEK) == entry


def test_key_and_value_are_the_contracts() -> None:
    entry = LedgerEntry("client1", DeliveryState.FAILED, "<1@x>", "550 no")
    assert entry.id.key(WEEK) == b"2026-W47/client1"
    assert entry.value() == b'{"State": "failed", "MessageId": "<1@x>", "Reason": "550 no"}'


def test_other_weeks_are_passed_over() -> None:
    assert decode(b"2026-W46/client1", b"{}", WEEK) is None
    assert decode(None, b"{}", WEEK) is None


def test_a_record_that_cannot_be_read_is_unknown_and_not_open() -> None:
    sent = b'{"State":"sent",'
    for value in (
        *(b"", b"null", b"{}", b'{"State":"gone"}', b"\xff", b"[1]", b'"State"', b"1" * 5000),
        *(
            b"[" * 100_000,
            b'{"State":' * 100_000,
            sent + b'"x":' + b"[" * 9999 + b"]" * 9999 + b"}",
        ),
        *(sent + b'"MessageId":[1]}', sent + b'"MessageId":"' + b"x" * 999 + b'"}'),
        *(sent + b'"Reason":1}', sent + b'"Resends":"1"}', sent + b'"Resends":-1}'),
        b'{"State":"' + b"x" * 1_000_000 + b'"}',
    ):
        entry = decode(b"2026-W47/c", value, WEEK)
        assert entry is not None
        assert entry.state is DeliveryState.UNKNOWN, value[:40]
        assert entry.reason is not None
        assert len(entry.reason) < 300


def test_an_id_that_no_record_can_hold_has_a_short_one_in_the_ledger() -> None:
    long, other = "x" * 1_000_000, "x" * 1_000_001
    assert ledger_id("x" * 65_536) == "x" * 65_536
    assert len({ledger_id(long), ledger_id(other)}) == 2
    entry = LedgerEntry(long, DeliveryState.FAILED)
    assert len(entry.id.key(WEEK)) < 200
    assert decode(entry.id.key(WEEK), entry.value(), WEEK) == replace(entry, client=ledger_id(long))
    assert decode(f"{WEEK}/{long}".encode(), entry.value(), WEEK) == replace(
        entry, client=ledger_id(long)
    )
    ledger_index = LedgerIndex.fold([entry])
    assert ledger_index.states([long, other]) == [DeliveryState.FAILED, None]


@given(ENTRIES)
def test_the_index_has_every_client_in_the_state_of_a_plain_fold(
    entries: list[LedgerEntry],
) -> None:
    ledger_index, plain = LedgerIndex.fold(entries), fold(entries)
    clients = ["a", "b", "c", "größe", "x/y", "never"]
    states = [plain[client].state if client in plain else None for client in clients]
    assert ledger_index.states(clients) == states
    assert ledger_index.counts().total() == len(plain)
    unknown = {
        c for c, e in plain.items() if e.state in (DeliveryState.SENDING, DeliveryState.UNKNOWN)
    }
    assert {about.client for about in ledger_index.delivery_unknown} == unknown


def projected(entries: list[LedgerEntry], at_once: int = 2) -> Connection:
    """Return a projection of entries in which so many records are folded at once."""
    database = connect(":memory:")
    for table in LEDGER.tables:
        database.execute(f"CREATE TABLE {table}")
    headers: Headers = [("reason", b"opened")]
    records = [
        Record(entry.id.key(WEEK), entry.value(), headers, 0, "weekly-emails", 0, offset)
        for offset, entry in enumerate(entries)
    ]
    for start in range(0, len(records), at_once):
        LEDGER.fold(database, records[start : start + at_once])
    return database


@given(ENTRIES)
def test_the_projection_has_every_client_in_the_state_of_a_plain_fold(
    entries: list[LedgerEntry],
) -> None:
    database, plain = projected(entries), fold(entries)
    clients = {"a", "b", "c", "größe", "x/y", "never"}
    is_open = dict(open_among(database, WEEK, sorted(clients)))
    assert is_open.keys() == clients - plain.keys()
    tombstoned = {entry.client for entry in entries} - plain.keys()
    assert is_open == {client: "opened" if client in tombstoned else None for client in is_open}
    states = (
        DeliveryState.UNKNOWN if one.state == "sending" else one.state for one in plain.values()
    )
    assert counts_of(database, WEEK) == Counter(states)
    in_state = {state: listed(database, WEEK, state) for state in DeliveryState}
    assert {state: len(those) for state, those in in_state.items() if those} == counts_of(
        database, WEEK
    )
    assert counts_of(database, WEEK.next) == Counter()


def test_the_projection_has_erased_clients_by_their_hash_and_any_reason() -> None:
    erased = LedgerEntry(erased_id("client7"), DeliveryState.SENT, is_erased=True)
    halved = LedgerEntry("b", DeliveryState.FAILED, reason="no \ud800")
    value = (halved.value() or b"").replace(b"no ?", b"no \\ud800")
    database = projected([erased, halved])
    LEDGER.fold(database, [Record(halved.id.key(WEEK), value, [], 0, "weekly-emails", 0, 2)])
    found = open_among(database, WEEK, ["client7", erased.client, "b"])
    assert found == [(erased.client, None)]
    assert listed(database, WEEK, DeliveryState.FAILED) == [("b", "no ?")]


@given(ENTRIES, st.lists(st.booleans()))
def test_the_index_tells_whose_mail_was_sent_again(
    entries: list[LedgerEntry], again: list[bool]
) -> None:
    history = [
        resent(entry) if is_again else entry
        for entry, is_again in zip_longest(entries, again[: len(entries)], fillvalue=False)
        if isinstance(entry, LedgerEntry)
    ]
    expected = {client: entry.resends for client, entry in fold(history).items() if entry.resends}
    ledger_index = LedgerIndex.fold(history)
    assert {about.client: n for about, n in ledger_index.resends.items()} == expected
    for entry in sending_to_unknown(ledger_index):
        assert entry.resends == expected.get(entry.client, 0)


def test_a_client_that_is_named_as_the_hash_of_an_erased_one_is_another() -> None:
    erased = LedgerEntry(erased_id("client7"), DeliveryState.SENT, is_erased=True)
    named = replace(erased, is_erased=False)
    assert erased.id.key(WEEK) != named.id.key(WEEK)
    assert decode(erased.id.key(WEEK), erased.value(), WEEK) == erased
    assert decode(named.id.key(WEEK), named.value(), WEEK) == named
    ids = ["client7", named.client]
    assert LedgerIndex.fold([erased]).states(ids) == [DeliveryState.SENT, None]
    assert LedgerIndex.fold([named]).states(ids) == [None, DeliveryState.SENT]
    both = LedgerIndex.fold([replace(one, state=DeliveryState.SENDING) for one in (erased, named)])
    assert len(sending_to_unknown(both)) == 2
    assert both.unknown("client7").is_erased


def test_a_sending_without_outcome_becomes_unknown() -> None:
    ledger_index = LedgerIndex.fold(
        [
            LedgerEntry("a", DeliveryState.SENDING),
            LedgerEntry("b", DeliveryState.SENDING),
            LedgerEntry("b", DeliveryState.SENT),
        ]
    )
    assert [entry.client for entry in sending_to_unknown(ledger_index)] == ["a"]
    assert ledger_index.states(["a", "b"]) == [DeliveryState.UNKNOWN, DeliveryState.SENT]


def test_whom_a_run_mails_depends_on_its_resend_policy() -> None:
    hold = ResendPolicy()
    resend, again = ResendPolicy(resend_unknown=True), ResendPolicy(again_failed=True)
    assert [state for state in (None, *DeliveryState) if hold.selects(state)] == [None]
    assert [state for state in DeliveryState if resend.selects(state)] == [
        DeliveryState.SENDING,
        DeliveryState.UNKNOWN,
    ]
    assert [state for state in (None, *DeliveryState) if resend.selects(state, 1)] == [None]
    assert [state for state in DeliveryState if again.selects(state)] == [DeliveryState.FAILED]
    back = ResendPolicy(again_suppressed=True)
    assert [state for state in DeliveryState if back.selects(state)] == [DeliveryState.SUPPRESSED]
