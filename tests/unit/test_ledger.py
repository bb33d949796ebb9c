"""The ledger's records, their fold, and what follows for a client."""

from hypothesis import given
from hypothesis import strategies as st

from shardpost.weekly_email.model.delivery import (
    Accepted,
    Again,
    Final,
    LeaveOpen,
    NoReply,
    NotSent,
    PermanentFailure,
    TemporaryFailure,
    next_step,
)
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    Policy,
    decode,
    fold,
    message_id,
)
from shardpost.weekly_email.model.ledger_index import LedgerIndex

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


def test_a_record_that_cannot_be_read_is_in_doubt_and_not_open() -> None:
    for value in (b"", b"null", b"{}", b'{"State":"gone"}', b"\xff", b"[1]"):
        entry = decode(b"2026-W47/c", value, WEEK)
        assert entry is not None
        assert entry.state is DeliveryState.UNKNOWN


@given(ENTRIES)
def test_the_book_says_of_every_client_what_a_plain_fold_says(entries: list[LedgerEntry]) -> None:
    book, plain = LedgerIndex.fold(entries), fold(entries)
    clients = ["a", "b", "c", "größe", "x/y", "never"]
    states = [plain[client].state if client in plain else None for client in clients]
    assert book.states(clients) == states
    assert book.counts().total() == len(plain)
    doubtful = {
        c for c, e in plain.items() if e.state in (DeliveryState.SENDING, DeliveryState.UNKNOWN)
    }
    assert set(book.doubtful) == doubtful


def test_a_sending_without_outcome_becomes_unknown() -> None:
    book = LedgerIndex.fold(
        [
            LedgerEntry("a", DeliveryState.SENDING),
            LedgerEntry("b", DeliveryState.SENDING),
            LedgerEntry("b", DeliveryState.SENT),
        ]
    )
    assert book.give_up_sending() == ["a"]
    assert book.states(["a", "b"]) == [DeliveryState.UNKNOWN, DeliveryState.SENT]


def test_who_is_open_depends_on_what_the_run_was_told() -> None:
    hold, resend, again = Policy(), Policy(resend_unknown=True), Policy(again_failed=True)
    assert [state for state in (None, *DeliveryState) if hold.is_open(state)] == [None]
    assert [state for state in DeliveryState if resend.is_open(state)] == [
        DeliveryState.SENDING,
        DeliveryState.UNKNOWN,
    ]
    assert [state for state in DeliveryState if again.is_open(state)] == [DeliveryState.FAILED]


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


def test_each_outcome_has_its_consequence() -> None:
    assert next_step(Accepted(), 1, 5) == Final(DeliveryState.SENT)
    assert next_step(PermanentFailure("550 no"), 1, 5) == Final(DeliveryState.FAILED, "550 no")
    assert next_step(NoReply("silence"), 1, 5) == Final(DeliveryState.UNKNOWN, "silence")
    assert next_step(TemporaryFailure("451 busy"), 4, 5) == Again("451 busy")
    assert next_step(TemporaryFailure("451 busy"), 5, 5) == Final(
        DeliveryState.FAILED, "451 busy (at attempt 5 of 5)"
    )


def test_a_lost_connection_is_never_a_clients_failure() -> None:
    assert next_step(NotSent("lost"), 1, 5) == Again("lost")
    assert next_step(NotSent("lost"), 5, 5) == LeaveOpen("lost")
    assert next_step(NotSent("down", unreachable=True), 5, 5) == Again("down", is_attempt=False)
