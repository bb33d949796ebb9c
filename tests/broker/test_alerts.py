"""Alert channels: a real web server, a real SMTP conversation, ports where nobody listens."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shardpost.alerts.channels import channels, send_all, tell, without_secrets
from shardpost.alerts.model.alert import Message
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.mail_server import mail_server

MESSAGE = Message("Shardpost: something", "first line\nsecond line")
NEVER_SHOWN = "hush-hush-4711"


class Hooks(ThreadingHTTPServer):
    """A web server that keeps what it is sent, and answers what it is told to."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.received: list[dict[str, str]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server_port}/{NEVER_SHOWN}"


class _Handler(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(json.loads(body))
        self.server.may_answer.wait()
        self.send_response(self.server.status)
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


def test_a_webhook_and_a_mailbox_are_told(tmp_path: Path) -> None:
    with hooks() as web, mail_server() as mail:
        to_mail = f"mailto://127.0.0.1:{mail.port}?from=shardpost@example.com&to=ops@example.com"
        deliveries = tell(settings_of(tmp_path, web.url, to_mail), MESSAGE)
    assert [one.problem for one in deliveries] == [None, None]
    [received] = web.received
    assert (received["title"], received["message"]) == (MESSAGE.title, MESSAGE.body)
    assert received["type"] == "failure"
    assert mail.taken["ops@example.com"] == 1
    assert b"Shardpost: something" in mail.contents["ops@example.com"]


def test_a_channel_that_is_down_is_told_by_another(tmp_path: Path, silent_port: int) -> None:
    down = f"json://user:{NEVER_SHOWN}@127.0.0.1:{silent_port}/{NEVER_SHOWN}"
    with hooks() as web:
        deliveries = tell(settings_of(tmp_path, down, web.url), MESSAGE)
    assert [one.problem is None for one in deliveries] == [False, True]
    assert [one["title"] for one in web.received] == [
        MESSAGE.title,
        "Shardpost: an alert channel is down",
    ]
    assert "alert channel 1: JSON at 127.0.0.1: failed" in web.received[1]["message"]
    assert NEVER_SHOWN not in str(web.received)
    said = (tmp_path / "alerts.log").read_text()
    assert "second line" in said
    assert "alert channel 1: JSON at 127.0.0.1: failed" in said
    assert NEVER_SHOWN not in said


def test_a_channel_that_is_down_is_told_once_and_when_it_is_back(tmp_path: Path) -> None:
    with hooks(status=500) as flaky, hooks() as web:
        settings = settings_of(tmp_path, flaky.url, web.url)
        tell(settings, MESSAGE)
        tell(settings, MESSAGE)
        flaky.status = 200
        tell(settings, MESSAGE)
        tell(settings, MESSAGE)
    assert [one["title"] for one in web.received] == [
        MESSAGE.title,
        "Shardpost: an alert channel is down",
        MESSAGE.title,
        MESSAGE.title,
        "Shardpost: an alert channel works again",
        MESSAGE.title,
    ]


def test_a_file_that_cannot_be_written_keeps_no_channel_from_being_told(tmp_path: Path) -> None:
    (tmp_path / "alerts.log").mkdir()
    with hooks() as web:
        [delivery] = tell(settings_of(tmp_path, web.url), MESSAGE)
    assert delivery.problem is None
    assert len(web.received) == 1


def test_a_channel_that_refuses_has_failed(tmp_path: Path) -> None:
    with hooks(status=500) as web:
        [delivery] = tell(settings_of(tmp_path, web.url), MESSAGE)
    assert delivery.problem is not None
    assert "500" in delivery.problem


def test_a_channel_that_never_answers_keeps_nobody_waiting(tmp_path: Path) -> None:
    with hooks() as slow, hooks() as web:
        slow.may_answer.clear()
        found = channels(settings_of(tmp_path, slow.url, web.url))
        deliveries = send_all(found, MESSAGE, patience=0.5)
        assert [one.problem for one in deliveries] == ["no answer within 0.5 s", None]
        assert len(web.received) == 1


def test_without_channels_the_file_has_it(tmp_path: Path) -> None:
    assert tell(Settings(home=tmp_path), MESSAGE) == []
    lines = (tmp_path / "alerts.log").read_text().splitlines()
    assert [line.partition("Z ")[2] for line in lines] == ["first line", "second line"]


def test_a_url_that_is_wrong_fails_nothing_and_is_not_shown(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f"nonsense://{NEVER_SHOWN}")
    [delivery] = tell(settings, MESSAGE)
    assert NEVER_SHOWN not in str(delivery)
    with pytest.raises(ShardpostError, match="URL 1 \\(nonsense://…\\)") as error:
        channels(settings)
    assert NEVER_SHOWN not in str(error.value)


def test_no_log_has_a_secret(
    tmp_path: Path, silent_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    down = f"json://user:{NEVER_SHOWN}@127.0.0.1:{silent_port}/{NEVER_SHOWN}?+X-Token={NEVER_SHOWN}"
    with hooks() as web:
        tell(settings_of(tmp_path, down, web.url), MESSAGE)
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
        assert (failed["channel"], delivered["problem"]) == ("1: JSON at 127.0.0.1", None)
        assert NEVER_SHOWN not in done.stdout + done.stderr
        [received] = web.received
        assert received["title"] == "Shardpost: test alert"
        alone = command_line(tmp_path, web.url)("alerts", "test")
        assert alone == "1: JSON at 127.0.0.1: delivered\n"


def test_the_command_says_where_alerts_go_without_channels(tmp_path: Path) -> None:
    assert "alerts.log" in command_line(tmp_path)("alerts", "test")
