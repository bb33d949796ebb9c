"""The mail sink, spoken to over SMTP."""

import smtplib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardpost.embedded import daemons, sink
from shardpost.settings import Settings, load


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Settings]:
    port = str(daemons.choose_port())
    settings = load({"SHARDPOST_HOME": str(tmp_path), "SHARDPOST_SMTP_PORT": port})
    sink.start(settings)
    yield settings
    sink.stop(settings)


def send(settings: Settings, *messages: bytes, options: tuple[str, ...] = ()) -> None:
    with smtplib.SMTP("127.0.0.1", settings.smtp_port, timeout=20) as session:
        for message in messages:
            session.sendmail("from@shardpost.example", ["to@shardpost.example"], message, options)


def kept(settings: Settings) -> list[bytes]:
    return [path.read_bytes() for path in sorted((settings.home / "mail").glob("*.eml"))]


def test_a_mail_is_kept_byte_for_byte_as_it_was_received(running: Settings) -> None:
    mail = "Subject: Börse\r\n\r\n.dots\r\n..more\r\nend".encode() + b"\xff\r\n"
    send(running, mail, options=("BODY=8BITMIME", "SMTPUTF8"))
    assert kept(running) == [mail]


def test_names_sort_in_the_order_of_arrival_and_nothing_half_written_stays(
    running: Settings,
) -> None:
    mails = [f"Subject: {number}\r\n\r\n\r\n".encode() for number in range(30)]
    send(running, *mails)
    assert kept(running) == mails
    assert [path.suffix for path in (running.home / "mail").iterdir()] == [".eml"] * 30


def test_several_connections_at_once_lose_nothing(running: Settings) -> None:
    mails = [[f"Subject: {c}-{n}\r\n\r\n".encode() for n in range(20)] for c in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda batch: send(running, *batch), mails))
    assert sorted(kept(running)) == sorted(mail for batch in mails for mail in batch)


def test_a_mail_of_many_megabytes_is_kept(running: Settings) -> None:
    mail = b"Subject: long\r\n\r\n" + b"0123456789" * 9 * 100_000
    whole = b"\r\n".join(mail[i : i + 900] for i in range(0, len(mail), 900)) + b"\r\n"
    send(running, whole)
    assert kept(running) == [whole]


def test_commands_that_come_together_are_each_answered_and_each_mail_is_kept(
    running: Settings,
) -> None:
    announced = b"MAIL FROM:<a@x.example>\r\nRCPT TO:<b@x.example>\r\nDATA\r\n"
    address = ("127.0.0.1", running.smtp_port)
    with socket.create_connection(address, 20) as connection, connection.makefile("rb") as answers:
        assert answers.readline().startswith(b"220")
        connection.sendall(b"EHLO here\r\n")
        features = [*iter(answers.readline, b"250 HELP\r\n")]
        assert b"250-PIPELINING\r\n" in features
        for number in range(3):
            connection.sendall(announced)
            assert [answers.readline()[:3] for _ in range(3)] == [b"250", b"250", b"354"]
            connection.sendall(b"Subject: %d\r\n\r\n.\r\n" % number)
            assert answers.readline().startswith(b"250")
        connection.sendall(b"MAIL FROM:<a@x.example>\r\nRCPT nonsense\r\nDATA\r\nQUIT\r\n")
        assert [answer[:3] for answer in answers] == [b"250", b"501", b"503", b"221"]
    assert kept(running) == [b"Subject: %d\r\n\r\n" % number for number in range(3)]


def test_mail_survives_a_stop_and_a_start(running: Settings) -> None:
    send(running, b"Subject: one\r\n\r\n")
    sink.stop(running)
    assert sink.state(running)["state"] == "down"
    sink.start(running)
    send(running, b"Subject: two\r\n\r\n")
    assert kept(running) == [b"Subject: one\r\n\r\n", b"Subject: two\r\n\r\n"]


def test_a_mail_that_cannot_be_stored_is_refused_for_now(running: Settings) -> None:
    (running.home / "mail").rename(running.home / "elsewhere")
    with pytest.raises(smtplib.SMTPDataError, match=r"452.*cannot be stored"):
        send(running, b"Subject: one\r\n\r\n")
