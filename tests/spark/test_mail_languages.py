"""The language of a client's record goes with the audience, and the mail is as it was shown."""

import email
import email.policy
import json
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_run import run as weekly_email
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.mail_preview import preview
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_status import rows_of_begun
from tests.support.email_requests import email_request
from tests.support.installed import installed
from tests.support.mail_server import MailServer
from tests.support.week_tables import World

pytestmark = pytest.mark.usefixtures("spark")

WEEK = IsoWeek(2026, 45)
NOW = WEEK.end + timedelta(hours=8)
LANGUAGES = {
    "german": '{"Language": "de"}',
    "twice": '{"Language": "fr", "Language": "de-CH"}',
    "nested": '{"More": {"Language": "de"}, "Name": "\\"Language\\": \\"de\\""}',
    "number": '{"Language": 5}',
    "list": '{"Language": ["de"]}',
    "long": json.dumps({"Language": "de" * 100}),
    "unknown": '{"Language": "tlh"}',
    "none": "{}",
}
GERMAN = {"german": "de", "twice": "de_CH"}


@pytest.fixture
def world(settings: Settings, server: MailServer, tmp_path: Path) -> World:
    apply_topics(installed(settings))
    folder = tmp_path / "look"
    folder.mkdir()
    (folder / "subject.de.txt").write_text("Woche {{ week }}: {{ count | number }}")
    given = {"smtp_port": server.port, "mail_templates": folder}
    world = World(settings.model_copy(update=given))
    for number, (client, value) in enumerate(LANGUAGES.items()):
        world.position(str(number), client, amount="1234567.5")
        world.client(client, value=value.encode())
    world.position("20", "german")
    world.commit(looked_at=NOW)
    return world


def read(server: MailServer, client: str) -> EmailMessage:
    content = server.contents[f"{client}@x.example"]
    found = email.message_from_bytes(content, policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    return found


def test_each_client_is_mailed_in_its_language_as_it_was_shown_before_and_after(
    world: World, server: MailServer
) -> None:
    before = {
        client: preview(installed(world.settings), client, WEEK, now=NOW) for client in LANGUAGES
    }
    assert {client: one.language for client, one in before.items() if one.language} == GERMAN
    request = email_request(WEEK, now=NOW)
    assert weekly_email(request, installed(world.settings))[0] == 0
    frozen = FrozenWeeks(installed(world.settings).tables).find(WEEK)
    assert frozen is not None
    # Other templates, and another sender, from now on.
    folder = world.settings.mail_templates
    assert folder is not None
    (folder / "subject.de.txt").write_text("Anders")
    (folder / "weekly_email.txt").write_text("{{ no_variable }}")
    settings = world.settings.model_copy(update={"mail_from": "Other <other@x.example>"})
    # A later record changes neither the audience nor the language of its mails.
    world.client("german", value=b'{"Language": "en"}')
    world.commit(looked_at=NOW)
    for client in LANGUAGES:
        found = read(server, client)
        text = found.get_body(("plain",))
        assert text is not None
        rows = rows_of_begun(installed(settings), WEEK, client, NOW)
        after = preview(installed(settings), client, WEEK, rows, now=NOW)
        assert after.look_since is not None
        for shown in (before[client], after):
            assert found["Subject"] == shown.subject
            assert found["From"] == shown.headers["From"]
            assert found["Message-ID"] == shown.headers["Message-ID"]
            assert text.get_content().replace("\r\n", "\n") == shown.text
        assert after.is_frozen
        row = FrozenWeeks(installed(world.settings).tables).member(frozen, client)
        assert row is not None
        assert client in GERMAN or row["language"] in {None, "5", '["de"]', "tlh"}
    assert read(server, "german")["Subject"] == "Woche 2026-W45: 2"
    assert "1.234.567,5" in before["german"].text
    assert "1\u2019234\u2019567.5" in before["twice"].text
    assert "1234567.5" in before["number"].text
