"""Alert channels: a real web server, a real SMTP conversation, ports where nobody listens."""

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shardpost.alerts.channels import Channel, channels, send_all, without_secrets
from shardpost.alerts.model.alert import REPORTED, Condition, Message
from shardpost.alerts.notifier import Notified, notify, report
from shardpost.installation import Installation
from shardpost.settings import Settings
from shardpost.topics.model.finding import Severity
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed
from tests.support.mail_server import mail_server

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
MESSAGE = Message("Shardpost: something", "first line\nsecond line")
NEVER_SHOWN = "hush-hush-4711"


def condition(subject: str, text: str = "found") -> Condition:
    return Condition("r", subject, Severity.RISK, text, "what it means", REPORTED)


def told(settings: Settings, *subjects: str) -> Notified:
    """Report conditions at once, and tell people."""
    for subject in subjects[:-1]:
        report(installed(settings.model_copy(update={"alerts": None})), condition(subject), NOW)
    report(installed(settings), condition(subjects[-1]), NOW)
    return notify(installed(settings), NOW, list)


class Hooks(ThreadingHTTPServer):
    """A web server that keeps what it takes, and answers what it is told to.

    It takes no text of more than `longest` characters.
    """

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.longest = 1_000_000
        self.received: list[dict[str, str]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server_port}/{NEVER_SHOWN}"


class _Handler(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_too_long = len(body.get("text", "")) > self.server.longest
        if not is_too_long:
            self.server.received.append(body)
        self.server.may_answer.wait()
        self.send_response(413 if is_too_long else self.server.status)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def hooks(status: int = 200) -> Iterator[Hooks]:
    with Hooks(status) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.may_answer.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def silent_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and nobody listens
        yield held.getsockname()[1]


def settings_of(home: Path, *urls: str) -> Settings:
    return Settings(home=home, alerts=" ".join(urls))


def command_line(home: Path, *urls: str) -> CommandLine:
    return CommandLineHere({"SHARDPOST_HOME": str(home), "SHARDPOST_ALERTS": " ".join(urls)})


TITLE = "Shardpost: firing (risk) r of x"
DOWN = "Shardpost: firing (risk) alert-channel-down of 1: JSON at 127.0.0.1"
MARK = re.compile(" #[0-9a-f]{4}$")
DOWN_TEXT = re.compile("alert channel 1: JSON at 127.0.0.1 #[0-9a-f]{4}: failed")


def channels_of(installation: Installation) -> list[Channel]:
    return channels(installation)


def to_mailbox(port: int) -> str:
    return f"mailto://127.0.0.1:{port}?from=shardpost@example.com&to=ops@example.com"


def test_a_webhook_and_a_mailbox_are_told(tmp_path: Path) -> None:
    with hooks() as web, mail_server() as mail:
        found = channels_of(installed(settings_of(tmp_path, web.url, to_mailbox(mail.port))))
        deliveries = send_all(dict.fromkeys(found, MESSAGE))
    assert [one.problem for one in deliveries] == [None, None]
    [received] = web.received
    assert (received["title"], received["message"]) == (MESSAGE.title, MESSAGE.body)
    assert received["type"] == "failure"
    assert mail.taken["ops@example.com"] == 1
    assert b"Shardpost: something" in mail.contents["ops@example.com"]


def test_the_title_names_one_of_several_installations(tmp_path: Path) -> None:
    with hooks() as web:
        settings = settings_of(tmp_path, web.url).model_copy(update={"installations": "us"})
        send_all(dict.fromkeys(channels_of(installed(settings)), MESSAGE))
    assert [one["title"] for one in web.received] == [f"us: {MESSAGE.title}"]


def test_text_from_outside_is_no_link_where_html_is_rendered(tmp_path: Path) -> None:
    message = Message("Shardpost: x", 'group <a href="http://evil.example">us</a> & more\nline 2')
    with mail_server() as mail:
        [channel] = channels_of(
            installed(settings_of(tmp_path, f"{to_mailbox(mail.port)}&format=html"))
        )
        assert send_all({channel: message})[0].problem is None
    parts = message_from_bytes(mail.contents["ops@example.com"]).walk()
    [html] = [part for part in parts if part.get_content_type() == "text/html"]
    text = html.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert b"&lt;a" in text
    assert b"<a " not in text


def test_an_alert_that_is_too_long_for_a_service_is_sent_in_parts(tmp_path: Path) -> None:
    body = "\n".join(f"line {number} of many" for number in range(500))
    with hooks() as web:
        web.longest = 4000
        url = f"mmost://127.0.0.1:{web.server_port}/{NEVER_SHOWN.replace('-', '')}"
        [channel] = channels_of(installed(settings_of(tmp_path, url)))
        [delivery] = send_all({channel: Message("Shardpost: x", body)})
    assert delivery.problem is None
    assert len(web.received) > 1
    parts = "\n".join(one["text"] for one in web.received)
    assert all(f"line {number} of many" in parts for number in range(500))


def test_a_url_that_apprise_refuses_silences_no_other_and_is_told_by_it(tmp_path: Path) -> None:
    with hooks() as web:
        settings = settings_of(tmp_path, f"nonsense://{NEVER_SHOWN}", web.url)
        told(settings, "x")
        done = command_line(tmp_path, f"nonsense://{NEVER_SHOWN}", web.url).run("alerts", "test")
    assert [MARK.sub("", one["title"]) for one in web.received] == [
        TITLE,
        "Shardpost: firing (risk) alert-channel-down of 1: nonsense",
        "Shardpost: test alert",
    ]
    assert done.returncode == 1
    refused = re.compile("1: nonsense #[0-9a-f]{4}: failed: Apprise refuses this URL")
    assert refused.match(done.stdout)
    said = (tmp_path / "alerts.log").read_text() + done.stdout + done.stderr + str(web.received)
    assert NEVER_SHOWN not in said.replace(web.url, "")


def test_a_channel_that_is_down_is_told_by_another(tmp_path: Path, silent_port: int) -> None:
    down = f"json://user:{NEVER_SHOWN}@127.0.0.1:{silent_port}/{NEVER_SHOWN}"
    with hooks() as web:
        told(settings_of(tmp_path, down, web.url), "x")
    assert [MARK.sub("", one["title"]) for one in web.received] == [TITLE, DOWN]
    assert DOWN_TEXT.search(web.received[1]["message"])
    assert NEVER_SHOWN not in str(web.received)
    said = (tmp_path / "alerts.log").read_text()
    assert "Z found" in said
    assert DOWN_TEXT.search(said)
    assert NEVER_SHOWN not in said


def test_a_channel_that_is_down_is_told_once_and_gets_what_it_missed_once_it_is_back(
    tmp_path: Path,
) -> None:
    with hooks(status=500) as flaky, hooks() as web:
        settings = settings_of(tmp_path, flaky.url, web.url)
        told(settings, "x")
        told(settings, "y")
        flaky.status, flaky.received = 200, []
        told(settings, "z")
    assert [MARK.sub("", one["title"]) for one in web.received] == [
        TITLE,
        DOWN,
        "Shardpost: firing (risk) r of y",
        "Shardpost: firing (risk) r of z",
        DOWN.replace("firing", "resolved"),
    ]
    assert [one["title"] for one in flaky.received] == ["Shardpost: 3 firing"]


def test_a_file_that_cannot_be_written_keeps_no_channel_from_being_told(tmp_path: Path) -> None:
    (tmp_path / "alerts.log").mkdir()
    with hooks() as web:
        told(settings_of(tmp_path, web.url), "x")
    assert [one["title"] for one in web.received] == [TITLE]


def test_a_channel_that_refuses_has_failed(tmp_path: Path) -> None:
    with hooks(status=500) as web:
        [channel] = channels_of(installed(settings_of(tmp_path, web.url)))
        [delivery] = send_all({channel: MESSAGE})
    assert delivery.problem is not None
    assert "500" in delivery.problem


def test_a_channel_that_never_answers_keeps_nobody_waiting(tmp_path: Path) -> None:
    with hooks() as slow, hooks() as web:
        slow.may_answer.clear()
        found = channels_of(installed(settings_of(tmp_path, slow.url, web.url)))
        deliveries = send_all(dict.fromkeys(found, MESSAGE), patience=0.5)
        assert [one.problem for one in deliveries] == ["no answer within 0.5 s", None]
        assert len(web.received) == 1


def test_without_channels_the_file_has_it(tmp_path: Path) -> None:
    assert told(Settings(home=tmp_path), "x") == Notified()
    lines = (tmp_path / "alerts.log").read_text().splitlines()
    assert [line.partition("Z ")[2] for line in lines] == ["firing (risk) r of x", "found"]


def test_a_channel_in_the_place_of_another_on_the_same_host_gets_what_is_firing(
    tmp_path: Path,
) -> None:
    with hooks() as web:
        old, new = (settings_of(tmp_path, f"{web.url}/{path}") for path in ("old", "new"))
        told(old, "x")
        for _ in range(2):
            notify(installed(new), NOW, list)
        assert [one["title"] for one in web.received] == [TITLE, TITLE]
        [name] = [one.name for one in channels_of(installed(new))]
    assert re.fullmatch("1: JSON at 127.0.0.1 #[0-9a-f]{4}", name)
    elsewhere = settings_of(tmp_path / "another home", f"{web.url}/new")
    assert [one.name for one in channels_of(installed(elsewhere))] != [name]  # salted


def test_no_log_has_a_secret(
    tmp_path: Path, silent_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    down = f"json://user:{NEVER_SHOWN}@127.0.0.1:{silent_port}/{NEVER_SHOWN}?+X-Token={NEVER_SHOWN}"
    with hooks() as web:
        told(settings_of(tmp_path, down, web.url), "x")
    assert "alert channel 1" in caplog.text
    assert NEVER_SHOWN not in caplog.text


def test_secrets_are_hidden_and_the_host_is_not() -> None:
    url = f"jsons://someone:pass%2Fword@hooks.example.com:8443/{NEVER_SHOWN}?token=abcd1234"
    text = f"cannot reach hooks.example.com/{NEVER_SHOWN} as someone with pass/word, abcd1234"
    shown = "cannot reach hooks.example.com/**** as **** with ****, ****"
    assert without_secrets(text, url) == shown


def test_the_command_tries_all_channels(tmp_path: Path, silent_port: int) -> None:
    down = f"json://127.0.0.1:{silent_port}/{NEVER_SHOWN}"
    with hooks() as web:
        done = command_line(tmp_path, down, web.url).run("alerts", "test", "--json")
        assert done.returncode == 1
        failed, delivered = json.loads(done.stdout)
        assert failed["channel"].startswith("1: JSON at 127.0.0.1 #")
        assert delivered["problem"] is None
        assert NEVER_SHOWN not in done.stdout + done.stderr
        [received] = web.received
        assert received["title"] == "Shardpost: test alert"
        alone = command_line(tmp_path, web.url)("alerts", "test")
        assert re.fullmatch("1: JSON at 127.0.0.1 #[0-9a-f]{4}: delivered\n", alone)


def test_the_command_says_where_alerts_go_without_channels(tmp_path: Path) -> None:
    assert "alerts.log" in command_line(tmp_path)("alerts", "test")
