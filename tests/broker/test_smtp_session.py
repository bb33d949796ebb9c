"""SMTP conversations: the timeout of each phase, replies out of turn, commands at once."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from shardpost.kafka.transactions import FencedError
from shardpost.settings import Settings
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.retry import (
    Accepted,
    NoReply,
    NotSent,
    PermanentFailure,
    SmtpOutcome,
    TemporaryFailure,
)
from shardpost.weekly_email.smtp import SmtpSession
from shardpost.weekly_email.smtp_server import TIMEOUTS, Phase, SmtpServer
from tests.support.installed import installed
from tests.support.mail_server import (
    DROP,
    EHLO,
    HANG,
    PIPELINING,
    SAY_AND_DROP,
    MailServer,
    Script,
    mail_server,
)

BIG = b"x" * 70 * 500_000 + b"\r\n"
Talk = Callable[[socket.socket], None]


def mail(name: str, content: bytes = b"A: b\r\n\r\n.c\r\n") -> Mail:
    to = f"{name}@x.example"
    return Mail(name, f"<{name}@x>", "from@x.example", to, needs_utf8=False, content=content)


@dataclass(frozen=True)
class Hasty(SmtpServer):
    """The mail server, with so short a timeout of some phases."""

    short: tuple[Phase, ...] = ()
    seconds: float = 0.2

    def timeout(self, phase: Phase) -> float:
        return self.seconds if phase in self.short else super().timeout(phase)


def server_at(port: int, *short: Phase, seconds: float = 0.2) -> SmtpServer:
    """Return the mail server; only these phases have a short timeout, if any are named."""
    at = installed(Settings(smtp_port=port, mail_attempts=2)).values(SmtpServer)
    return Hasty(**vars(at), short=short, seconds=seconds)


def until(connection: socket.socket, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError(f"expected {end!r}, found {found[-100:]!r}")
        found += piece
    return found


@contextmanager
def raw_server(talk: Talk) -> Iterator[int]:
    """Greet each connection and announce pipelining, then let `talk` go on; close after it."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"220 hello\r\n")
                until(connection, b"\r\n")
                connection.sendall(f"{PIPELINING}\r\n".encode())
                talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def refusing(**replies: str) -> Script:
    """Say these things about the first mail, which is to `bad`, and yes to all others."""
    mails = 0

    def script(stage: str, recipient: str) -> str | None:
        nonlocal mails
        mails += stage == "MAIL"
        is_bad = mails == 1 if stage == "MAIL" else recipient.startswith("bad")
        return replies.get(stage) if is_bad else None

    return script


@contextmanager
def speaking(
    script: Script, *short: Phase, seconds: float = 0.2, ehlo: str = EHLO
) -> Iterator[tuple[SmtpSession, MailServer]]:
    with mail_server(script, ehlo=ehlo) as server:
        session = SmtpSession(server_at(server.port, *short, seconds=seconds))
        yield session, server
        session.close()


def two(script: Script) -> tuple[SmtpOutcome, int]:
    """Send a mail to `bad`, then one to `good`, which has to arrive.

    Return what became of the first, and how many connections there were.
    """
    with speaking(script, *TIMEOUTS, seconds=1, ehlo=PIPELINING) as (session, server):
        outcome = session.send(mail("bad"))
        assert session.send(mail("good")) == Accepted()
        assert server.taken == {"good@x.example": 1}
        assert server.contents["good@x.example"] == b"A: b\r\n\r\n.c\r\n"
        return outcome, server.connections


def test_a_refused_recipient_takes_its_data_along_and_the_connection_goes_on() -> None:
    script = refusing(RCPT="550 no such user", DATA="503 no recipients")
    assert two(script) == (PermanentFailure("550 no such user"), 1)


def test_a_refused_sender_is_told_by_the_first_answer_and_not_by_those_that_follow() -> None:
    script = refusing(MAIL="451 later", RCPT="503 no sender", DATA="503 no sender")
    assert two(script) == (TemporaryFailure("451 later"), 1)


def test_a_server_that_wants_the_mail_of_nobody_is_left_without_a_dot() -> None:
    assert two(refusing(RCPT="550 no such user")) == (PermanentFailure("550 no such user"), 2)


def test_who_wants_a_mail_of_nobody_hears_not_another_word() -> None:
    said: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        until(connection, b"DATA\r\n")
        connection.sendall(b"250 fine\r\n550 no such user\r\n354 go on\r\n")
        said.append(connection.recv(1000))

    with raw_server(talk) as port:
        assert SmtpSession(server_at(port)).send(mail("bad")) == PermanentFailure(
            "550 no such user"
        )
    assert said == [b""]


@pytest.mark.parametrize("does", [HANG, DROP])
def test_what_was_refused_stays_refused_when_the_server_says_no_more(does: str) -> None:
    assert two(refusing(RCPT="550 no such user", DATA=does)) == (
        PermanentFailure("550 no such user"),
        2,
    )


def test_a_server_that_closes_amid_it_is_opened_again() -> None:
    script = refusing(RCPT="421 closing" + SAY_AND_DROP)
    assert two(script) == (TemporaryFailure("421 closing"), 2)


@pytest.mark.parametrize(("ehlo", "heard"), [(EHLO, 0), (PIPELINING, 1)])
def test_only_a_server_that_says_so_hears_of_the_recipient_before_its_answer(
    ehlo: str, heard: int
) -> None:
    script = refusing(MAIL="550 no", RCPT="503 no sender", DATA="503 no sender")
    with speaking(script, ehlo=ehlo) as (session, server):
        assert session.send(mail("bad")) == PermanentFailure("550 no")
        assert server.seen["RCPT", "bad@x.example"] == heard


def test_all_is_said_before_the_first_answer_and_answers_may_come_in_pieces() -> None:
    said: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        said.append(until(connection, b"DATA\r\n"))
        for piece in (b"25", b"0-so\r\n250 so\r\n2", b"50 fine\r", b"\n354 go on\r\n"):
            connection.sendall(piece)
        said.append(until(connection, b"\r\n.\r\n"))
        connection.sendall(b"250 taken\r\n")

    with raw_server(talk) as port:
        session = SmtpSession(server_at(port))
        assert session.send(mail("c")) == Accepted()
        session.close()
    assert said == [
        b"MAIL FROM:<from@x.example>\r\nRCPT TO:<c@x.example>\r\nDATA\r\n",
        b"A: b\r\n\r\n..c\r\n.\r\n",
    ]


@pytest.mark.parametrize("ehlo", [EHLO, PIPELINING])
@pytest.mark.parametrize("does", [HANG, DROP])
@pytest.mark.parametrize(
    ("stage", "phase"),
    [
        ("connect", "connect"),
        ("EHLO", "command"),
        ("MAIL", "command"),
        ("RCPT", "command"),
        ("DATA", "data"),
    ],
)
def test_a_server_that_hangs_or_closes_before_the_mail_has_not_got_it(
    stage: str, phase: Phase, does: str, ehlo: str
) -> None:
    with speaking(lambda at, _: does if at == stage else None, phase, ehlo=ehlo) as (session, at):
        assert isinstance(session.send(mail("c")), NotSent)
        assert not at.taken


@pytest.mark.parametrize("does", [HANG, DROP])
def test_only_no_answer_to_the_final_dot_makes_a_delivery_unknown(does: str) -> None:
    with speaking(lambda at, _: does if at == "end" else None, "end") as (session, _server):
        assert isinstance(session.send(mail("c")), NoReply)


def test_a_server_may_be_busy_with_a_mail_for_longer_than_with_a_command() -> None:
    let_go = threading.Event()

    def busy(stage: str, _recipient: str) -> None:
        if stage == "end":
            let_go.wait(0.6)  # three times what a command may take

    with speaking(busy, "command", "data", "block") as (session, server):
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
        session = SmtpSession(server_at(port, "block"))
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
