"""The ledger's records, their fold, and whom a run mails."""

from hypothesis import given
from hypothesis import strategies as st

from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    ResendPolicy,
    decode,
    fold,
    message_id,
)
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.unknown_deliveries import sending_to_unknown

WEEK = IsoWeek(2026, 47)

ENTRIES = st.lists(
    st.builds(
        LedgerEntry,
        st.sampled_from(["a", "b", "c", "größe", "x/y"]),
        st.sampled_from([None, *DeliveryState]),
    )
)


@given(ENTRIES)
def test_an_entry_reads_back_as_it_was_written(entries: list[LedgerEntry]) -> None:
    for entry in entries:
        assert decode(entry.key(WEEK), entry.value(), WEEK) == entry


def test_key_and_value_are_the_contracts() -> None:
    entry = LedgerEntry("client1", DeliveryState.FAILED, "<1@x>", "550 no")
    assert entry.key(WEEK) == b"2026-W47/client1"
    assert entry.value() == b'{"State": "failed", "MessageId": "<1@x>", "Reason": "550 no"}'


def test_other_weeks_are_passed_over() -> None:
    assert decode(b"2026-W46/client1", b"{}", WEEK) is None
    assert decode(None, b"{}", WEEK) is None


def test_a_record_that_cannot_be_read_is_unknown_and_not_open() -> None:
    for value in (b"", b"null", b"{}", b'{"State":"gone"}', b"\xff", b"[1]"):
        entry = decode(b"2026-W47/c", value, WEEK)
        assert entry is not None
        assert entry.state is DeliveryState.UNKNOWN


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
    assert set(ledger_index.delivery_unknown) == unknown


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
    assert [state for state in DeliveryState if again.selects(state)] == [DeliveryState.FAILED]


def test_the_message_id_depends_on_week_and_client_and_on_nothing_else() -> None:
    one = message_id(WEEK, "client1", "x.example")
    assert one == message_id(WEEK, "client1", "x.example")
    assert one.startswith("<")
    assert one.endswith("@x.example>")
    assert (
        len(
            {
                one,
                message_id(WEEK.next, "client1", "x.example"),
                message_id(WEEK, "client2", "x.example"),
            }
        )
        == 3
    )
