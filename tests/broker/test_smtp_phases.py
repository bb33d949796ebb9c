"""Each phase of an SMTP conversation: its own timeout, and what a reply out of turn means."""

import socket
import threading

import pytest

from shardpost.kafka.transactions import FencedError
from shardpost.weekly_email.model.retry import (
    Accepted,
    NoReply,
    NotSent,
    PermanentFailure,
    SmtpOutcome,
    TemporaryFailure,
)
from shardpost.weekly_email.smtp import SmtpSession
from tests.broker.test_smtp_pipelining import mail, raw_server, settings_for, speaking, until
from tests.support.mail_server import (
    DROP,
    EHLO,
    HANG,
    PIPELINING,
    SAY_AND_DROP,
    Script,
)

BIG = b"x" * 70 * 500_000 + b"\r\n"


@pytest.mark.parametrize("ehlo", [EHLO, PIPELINING])
@pytest.mark.parametrize("does", [HANG, DROP])
@pytest.mark.parametrize(
    ("stage", "phase"),
    [("connect", "CONNECT_"), ("EHLO", ""), ("MAIL", ""), ("RCPT", ""), ("DATA", "DATA_")],
)
def test_a_server_that_hangs_or_closes_before_the_mail_has_not_got_it(
    stage: str, phase: str, does: str, ehlo: str
) -> None:
    with speaking(lambda at, _: does if at == stage else None, phase, ehlo=ehlo) as (session, at):
        assert isinstance(session.send(mail("c")), NotSent)
        assert not at.taken


@pytest.mark.parametrize("does", [HANG, DROP])
def test_only_no_answer_to_the_final_dot_makes_a_delivery_unknown(does: str) -> None:
    with speaking(lambda at, _: does if at == "end" else None, "END_") as (session, _server):
        assert isinstance(session.send(mail("c")), NoReply)


def test_a_server_may_be_busy_with_a_mail_for_longer_than_with_a_command() -> None:
    let_go = threading.Event()

    def busy(stage: str, _recipient: str) -> None:
        if stage == "end":
            let_go.wait(0.6)  # three times what a command may take

    with speaking(busy, "", "DATA_", "BLOCK_") as (session, server):
        assert session.send(mail("c")) == Accepted()
        assert server.connections == 1


def refused_amid(*says: bytes, closes: bool = True) -> SmtpOutcome:
    """Send a mail of which the server reads some, and says that; return what became of it."""
    done = threading.Event()

    def talk(connection: socket.socket) -> None:
        until(connection, b"DATA\r\n")
        connection.sendall(b"250 fine\r\n250 fine\r\n354 go on\r\n")
        connection.recv(1000)
        for reply in says:
            connection.sendall(reply)
        if not closes:
            done.wait()

    with raw_server(talk) as port:
        session = SmtpSession(settings_for(port, "BLOCK_"))
        try:
            return session.send(mail("c", BIG))
        finally:
            done.set()


@pytest.mark.parametrize("closes", [True, False])
def test_a_mail_that_is_refused_while_it_is_written_is_refused(closes: bool) -> None:
    assert refused_amid(b"552 too ", b"big\r\n", closes=closes) == PermanentFailure("552 too big")
    assert refused_amid(b"452 no room\r\n", closes=closes) == TemporaryFailure("452 no room")


@pytest.mark.parametrize("says", [b"", b"421 bye\r\n", b"250 taken\r\n", b"nonsense\r\n"])
def test_a_mail_that_is_not_written_to_its_end_is_never_taken_and_never_failed(says: bytes) -> None:
    assert isinstance(refused_amid(says), NotSent)


def test_a_421_at_mail_on_an_older_connection_opens_a_new_one_at_once() -> None:
    mails = 0

    def script(stage: str, _recipient: str) -> str | None:
        nonlocal mails
        mails += stage == "MAIL"
        return "421 enough" + SAY_AND_DROP if (stage, mails) == ("MAIL", 2) else None

    with speaking(script) as (session, server):
        assert [session.send(mail("a")), session.send(mail("b"))] == [Accepted(), Accepted()]
        assert (server.connections, server.seen["MAIL", ""]) == (2, 2)


@pytest.mark.parametrize("ehlo", [EHLO, PIPELINING])
def test_a_421_at_mail_on_new_connections_too_is_a_server_that_cannot_be_reached(
    ehlo: str,
) -> None:
    closing: Script = lambda at, _: "421 full" + SAY_AND_DROP if at == "MAIL" else None  # noqa: E731
    with speaking(closing, ehlo=ehlo) as (session, server):
        outcome = session.send(mail("c"))
        assert outcome == NotSent("connection closed at once: 421 full", unreachable=True)
        assert server.connections == 2


def test_a_mail_that_must_not_go_is_left_without_content() -> None:
    def refuse() -> None:
        raise FencedError("fenced")

    with speaking(lambda _at, _to: None) as (session, server):
        assert session.send(mail("c"), refuse) == NotSent("fenced")
        assert session.send(mail("d")) == Accepted()
        assert server.taken == {"d@x.example": 1}
