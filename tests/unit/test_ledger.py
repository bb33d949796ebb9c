"""The ledger's records, their fold, and what follows for a client."""

from hypothesis import given
from hypothesis import strategies as st

from shardpost.domain.book import Book
from shardpost.domain.delivery import (
    Again,
    Final,
    Later,
    LeaveOpen,
    NotSent,
    Refused,
    Sent,
    Unknown,
    follow,
)
from shardpost.domain.ledger import Entry, Policy, State, decode, fold, message_id
from shardpost.domain.weeks import IsoWeek

WEEK = IsoWeek(2026, 47)

ENTRIES = st.lists(
    st.builds(
        Entry, st.sampled_from(["a", "b", "c", "größe", "x/y"]), st.sampled_from([None, *State])
    )
)


@given(ENTRIES)
def test_an_entry_reads_back_as_it_was_written(entries: list[Entry]) -> None:
    for entry in entries:
        assert decode(entry.key(WEEK), entry.value(), WEEK) == entry


def test_key_and_value_are_the_contracts() -> None:
    entry = Entry("client1", State.FAILED, "<1@x>", "550 no")
    assert entry.key(WEEK) == b"2026-W47/client1"
    assert entry.value() == b'{"State": "failed", "MessageId": "<1@x>", "Reason": "550 no"}'


def test_other_weeks_are_passed_over() -> None:
    assert decode(b"2026-W46/client1", b"{}", WEEK) is None
    assert decode(None, b"{}", WEEK) is None


def test_a_record_that_cannot_be_read_is_in_doubt_and_not_open() -> None:
    for value in (b"", b"null", b"{}", b'{"State":"gone"}', b"\xff", b"[1]"):
        entry = decode(b"2026-W47/c", value, WEEK)
        assert entry is not None
        assert entry.state is State.UNKNOWN


@given(ENTRIES)
def test_the_book_says_of_every_client_what_a_plain_fold_says(entries: list[Entry]) -> None:
    book, plain = Book.fold(entries), fold(entries)
    clients = ["a", "b", "c", "größe", "x/y", "never"]
    states = [plain[client].state if client in plain else None for client in clients]
    assert book.states(clients) == states
    assert book.counts().total() == len(plain)
    doubtful = {c for c, e in plain.items() if e.state in (State.SENDING, State.UNKNOWN)}
    assert set(book.doubtful) == doubtful


def test_a_sending_without_outcome_becomes_unknown() -> None:
    book = Book.fold([Entry("a", State.SENDING), Entry("b", State.SENDING), Entry("b", State.SENT)])
    assert book.give_up_sending() == ["a"]
    assert book.states(["a", "b"]) == [State.UNKNOWN, State.SENT]


def test_who_is_open_depends_on_what_the_run_was_told() -> None:
    hold, resend, again = Policy(), Policy(resend_unknown=True), Policy(again_failed=True)
    assert [state for state in (None, *State) if hold.is_open(state)] == [None]
    assert [state for state in State if resend.is_open(state)] == [State.SENDING, State.UNKNOWN]
    assert [state for state in State if again.is_open(state)] == [State.FAILED]


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
    assert follow(Sent(), 1, 5) == Final(State.SENT)
    assert follow(Refused("550 no"), 1, 5) == Final(State.FAILED, "550 no")
    assert follow(Unknown("silence"), 1, 5) == Final(State.UNKNOWN, "silence")
    assert follow(Later("451 busy"), 4, 5) == Again("451 busy")
    assert follow(Later("451 busy"), 5, 5) == Final(State.FAILED, "451 busy (at attempt 5 of 5)")


def test_a_lost_connection_is_never_a_clients_failure() -> None:
    assert follow(NotSent("lost"), 1, 5) == Again("lost")
    assert follow(NotSent("lost"), 5, 5) == LeaveOpen("lost")
    assert follow(NotSent("down", unreachable=True), 5, 5) == Again("down", is_attempt=False)
