"""`shardpost email test`: the same mail to another address, marked, outside the ledger."""

import email
import email.policy
from collections.abc import Iterator
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.unsubscribe import keys_of
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.mail_preview import preview
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.command_line import CommandLineHere
from tests.support.handed_over import Run
from tests.support.installed import installed
from tests.support.mail_server import DROP, TAKE_AND_DROP, MailServer, mail_server
from tests.support.memory_kafka import memory_kafka
from tests.support.week_tables import World
from tests.support.written_weeks import begin, freeze

WEEK = IsoWeek(2026, 45)
NOW = WEEK.end + timedelta(hours=8)
SECRET = "1:a-secret-of-16-characters"  # noqa: S105 - of a test
URL = "https://bank.example/off/{client}?token={token}"
TO = "tester@x.example"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as found:
        yield found


@pytest.fixture
def ready(tmp_path: Path, server: MailServer) -> Iterator[Settings]:
    """Give a home in which c1 holds, and is not mailed yet."""
    given: dict[str, Any] = {
        "unsubscribe_url": URL,
        "unsubscribe_secret": SECRET,
        "smtp_port": server.port,
    }
    with memory_kafka(home=tmp_path, partitions=2, kafka_timeout=30, **given) as kafka:
        apply_topics(installed(kafka.settings))
        world = World(kafka.settings)
        world.position("1", "c1")
        world.client("c1", name="Ann")
        world.commit(looked_at=NOW)
        yield kafka.settings


def test_a_test_is_the_mail_but_for_what_is_the_clients(
    ready: Settings, server: MailServer, shardpost: CommandLineHere
) -> None:
    real = preview(installed(ready), "c1", WEEK, now=NOW)
    sent = shardpost.json("email", "test", "c1", "--to", TO, "--week", str(WEEK))
    assert sent["to"] == TO
    assert server.taken == {TO: 1}
    found = email.message_from_bytes(server.contents[TO], policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    assert found["Subject"] == sent["subject"] == f"[Test] {real.subject}"
    assert found["To"] == f"Ann <{TO}>"
    assert found["Message-ID"] == sent["message_id"] != real.headers["Message-ID"]
    assert "List-Unsubscribe" not in found
    assert "List-Unsubscribe-Post" not in found
    for name in ("From", "List-Id", "Auto-Submitted", "Precedence"):
        assert found[name] == real.headers[name]
    for kind, text in (("plain", real.text), ("html", real.html)):
        part = found.get_body((kind,))
        assert part is not None
        link = real.headers["List-Unsubscribe"].strip("<>")
        assert link in text
        expected = text.replace(link, "https://bank.example/")
        assert part.get_content().replace("\r\n", "\n").strip() == expected.strip()
    token = keys_of(SECRET)[0].token(ready.mail_list_id, "c1")
    assert token.encode() not in server.contents[TO].replace(b"=\r\n", b"")
    for shard in range(2):
        assert list(ShardLedger(installed(ready).kafka, WEEK, shard).entries()) == []


def test_a_test_of_a_mail_that_was_sent_is_that_mail(ready: Settings, server: MailServer) -> None:
    begin(ready, WEEK, NOW)
    freeze(ready, WEEK, ["c1"], NOW)
    Run(ready, WEEK, "c1", NOW).send()
    folder = ready.home / "look"
    folder.mkdir()
    (folder / "subject.txt").write_text("Another subject")
    changed: dict[str, Any] = {"mail_templates": folder, "mail_from": "Other <o@x.example>"}
    later = CommandLineHere(ready.model_copy(update=changed).environ())
    was = later.json("email", "preview", "c1", "--week", str(WEEK))
    sent = later.json("email", "test", "c1", "--to", TO, "--week", str(WEEK))
    assert was["subject"] == f"Your US stock in week {WEEK}: 1 position"
    assert sent["subject"] == f"[Test] {was['subject']}"
    found = email.message_from_bytes(server.contents[TO], policy=email.policy.default)
    assert found["From"] == was["headers"]["From"]
    assert found["Date"] != was["headers"]["Date"]


def test_of_a_mail_that_was_sent_and_is_not_known_no_test_is_sent(
    ready: Settings, server: MailServer
) -> None:
    begin(ready, WEEK, NOW)
    freeze(ready, WEEK, ["c1"], NOW)
    Run(ready, WEEK, "c1", NOW).send()
    changed = {"unsubscribe_secret": SECRET.replace("a-secret", "another")}
    later = CommandLineHere(ready.model_copy(update=changed).environ())
    said = later.refused("email", "test", "c1", "--to", TO, "--week", str(WEEK), code=1)
    assert "the ledger has the e-mail of c1 as `sent` since " in said
    assert "but its content is unknown: " in said
    assert server.taken == {}


def test_each_test_is_another_mail(server: MailServer, shardpost: CommandLineHere) -> None:
    for _ in range(2):
        said = shardpost("email", "test", "c1", "--to", TO, "--week", str(WEEK))
        assert said.startswith(f"sent to {TO}: [Test] Your US stock in week {WEEK}")
    assert len(server.message_ids[TO]) == 2


@pytest.mark.parametrize(
    ("at", "reply", "said"),
    [
        ("RCPT", "550 5.1.1 nobody", "was not sent: 550 5.1.1 nobody"),
        ("MAIL", "451 later", "was not sent: 451 later"),
        ("connect", DROP, "no connection in 1 attempts"),
        ("end", TAKE_AND_DROP, "may have been sent or not"),
    ],
)
def test_what_the_server_says_is_told_after_one_attempt(
    server: MailServer, shardpost: CommandLineHere, at: str, reply: str, said: str
) -> None:
    server.script = lambda stage, _to: reply if stage == at else None
    command = ("email", "test", "c1", "--to", TO, "--week", str(WEEK))
    assert said in shardpost.refused(*command, code=1)


def test_an_address_that_is_none_is_refused(server: MailServer, shardpost: CommandLineHere) -> None:
    two = ("a@x.example, b@x.example", "a@x.example <b@x.example>")
    for to in ("nobody", "a@x.example\r\nBcc: b@x.example", *two):
        shardpost.refused("email", "test", "c1", "--to", to, "--week", str(WEEK), code=2)
    assert not server.taken


def test_no_line_on_the_wire_ends_with_a_bare_lf(ready: Settings, server: MailServer) -> None:
    folder = ready.home / "look"
    folder.mkdir()
    for name in ("weekly_email.txt", "weekly_email.html"):
        (folder / name).write_text(f"{'. ' * 300}{{{{ name }}}} é")
    (folder / "from_name.txt").write_text("{{ name }}\nJörg " + "é" * 80)
    shardpost = CommandLineHere(ready.model_copy(update={"mail_templates": folder}).environ())
    shardpost("email", "test", "c1", "--to", TO, "--week", str(WEEK))
    content = server.contents[TO]
    assert len(content) > 1200
    assert b"\n" not in content.replace(b"\r\n", b"")
    assert b"\r" not in content.replace(b"\r\n", b"")
