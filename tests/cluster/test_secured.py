"""The whole pipeline on a Spark cluster, with TLS and a login to Kafka and to the mail server."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from shardpost.embedded import daemons
from shardpost.errors import NEEDS_ATTENTION
from shardpost.settings import load
from shardpost.weekly_email.model.week import IsoWeek
from tests.conftest import environ, settings_of_its_own
from tests.support.cluster import Cluster
from tests.support.command_line import CommandLine
from tests.support.compacting import agree, starter
from tests.support.how_far import is_every
from tests.support.reference import Fold, Raw, position, produce

WEEK = IsoWeek.last_ended(datetime.now(UTC))
CLIENTS = [f"client{n}" for n in range(12)]
LOGIN = ("me", "the mail's own $secret")
# Part of each password, however it is quoted.
SECRETS = ("HOME #1", "own $secret", "of the tests alone")
LOOK_SECONDS = 0.5  # no job is shorter


class Received:
    """Takes mails, and counts them by their recipients."""

    def __init__(self) -> None:
        self.recipients: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.recipients += envelope.rcpt_tos
        return "250 taken"


def _admitted(*given: Any) -> AuthResult:
    good = given[-1] == LoginPassword(*(one.encode() for one in LOGIN))
    return AuthResult(success=good, handled=False)


@contextmanager
def mail_server(cluster: Cluster) -> Iterator[tuple[Received, dict[str, object]]]:
    """Run a mail server with TLS, which the workers reach; give it and its settings."""
    address, port = cluster.network.address, daemons.choose_port()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cluster.secured.authority.issue("mail", address).both)
    received = Received()
    tls: dict[str, Any] = {
        "ssl_context": context,
        "authenticator": _admitted,
        "auth_require_tls": False,
    }
    controller = Controller(received, hostname=address, port=port, **tls)
    controller.start()
    login = {"smtp_tls": "tls", "smtp_user": LOGIN[0], "smtp_password": LOGIN[1]}
    sender = {"mail_from": "Weekly <weekly@mails.test>"}
    url = {"unsubscribe_url": "https://mails.test/?client={client}"}
    try:
        yield received, {"smtp_host": address, "smtp_port": port, **login, **sender, **url}
    finally:
        controller.stop()


@contextmanager
def watched_arguments(secrets: list[str], found: set[str]) -> Iterator[None]:
    """Collect the arguments of all processes that have a secret among them."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    line = " ".join(process.cmdline())
                    found.update([line] if any(secret in line for secret in secrets) else [])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def files_with(secrets: list[str], *folders: Path) -> list[Path]:
    """Return the files below folders that have a secret in them."""
    paths = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if any(s.encode() in path.read_bytes() for s in secrets)]


@pytest.mark.parametrize(
    ("how", "is_on_store"), [("login", False), ("certificate", False), ("texts", True)]
)
def test_all_of_it_works_with_tls_and_says_no_secret(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    *,
    is_on_store: bool,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", cluster.network.address)
    monkeypatch.setenv("SSL_CERT_FILE", str(cluster.secured.authority.certificate))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", cluster.java_options)
    client = getattr(cluster.secured, how)()
    servers = cluster.kafka.servers[str(client["kafka__security_protocol"])]
    own = settings_of_its_own(cluster.settings, tmp_path / "home").environ()
    key = cluster.secured.authority.folder / "client.key"
    secrets = [*SECRETS, *(key.read_text().splitlines()[1:2] if how != "login" else ())]
    arguments: set[str] = set()
    with mail_server(cluster) as (received, mail), watched_arguments(secrets, arguments):
        more = {"bootstrap_servers": servers, "replication_factor": 3, **client, **mail}
        spark = {"spark_master": cluster.spark.url}
        given = {f"SHARDPOST_{name.upper()}": str(text) for name, text in (more | spark).items()}
        given |= cluster.store.environ if is_on_store else {}
        shardpost = CommandLine(environ() | own | given)
        shardpost("topics", "apply")
        fold, records = Fold(), [position(str(n), one, "NYSE") for n, one in enumerate(CLIENTS)]
        contacts = [Raw("clients", one.encode(), contact(one)) for one in CLIENTS]
        fold.add([*starter(), *records, bad := Raw("positions", b"bad", b"{")])
        settings = load(environ() | own | given)
        produce(settings, [*records, *contacts, bad])
        said = [shardpost.answer("compact"), shardpost.answer("email", "--week", str(WEEK))]
        said.append(shardpost.answer("lag", "--all"))
        assert [code for code, _, _ in said] == [0, 0, 0], said
        if is_every():  # a third job, of what the first two have proved
            said.append(shardpost.answer("letters", "sweep"))
            assert said[-1][0] == NEEDS_ATTENTION, said
        agree(settings, fold)
        assert sorted(received.recipients) == sorted(f"{one}@x.example" for one in CLIENTS)
    assert arguments == set()
    assert not any(secret in text for _, *texts in said for text in texts for secret in secrets)
    assert files_with(secrets, tmp_path, cluster.folder / "spark") == []


def contact(client: str) -> bytes:
    form = '{"Client":"%s","Name":"N","Email":"%s@x.example","Subscribed":true}'
    return (form % (client, client)).encode()
