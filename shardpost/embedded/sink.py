"""The embedded mail server: accepts every e-mail and keeps it as a file `.eml` in `home/mail`.

It is a process of its own: `python -m shardpost.embedded.sink FOLDER PORT`.
"""

import asyncio
import itertools
import os
import signal
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from shardpost.embedded import daemons
from shardpost.embedded.daemons import Daemon, state_of, wait_until
from shardpost.settings import Settings

START_SECONDS = 30.0
STOP_SECONDS = 10.0
GREETING_SECONDS = 3.0
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


def start(settings: Settings) -> None:
    """Start the sink unless it is up; return when it is ready."""
    daemon = _daemon(settings)
    if not daemon.alive:
        daemons.require_free_port(settings.smtp_port, "the mail sink", "SHARDPOST_SMTP_PORT")
        daemon.start()
    what = f"the mail sink on port {settings.smtp_port}"
    wait_until(lambda: _is_ready(settings), what, START_SECONDS, [daemon])


def stop(settings: Settings) -> None:
    """Stop the sink."""
    _daemon(settings).stop(STOP_SECONDS)


def state(settings: Settings) -> dict[str, str]:
    """Return `state` (up, down or unhealthy), `address`, and `detail` if there is more to say."""
    address = f"{daemons.LOOPBACK}:{settings.smtp_port}"
    return state_of(_daemon(settings), settings.smtp_port, lambda: _is_ready(settings), address)


def _is_ready(settings: Settings) -> bool:
    """Tell whether it sends its greeting."""
    address = (daemons.LOOPBACK, settings.smtp_port)
    try:
        with socket.create_connection(address, GREETING_SECONDS) as connection:
            greeting = connection.recv(512)
            connection.sendall(b"QUIT\r\n")
    except OSError:
        return False
    return greeting.startswith(b"220")


def _daemon(settings: Settings) -> Daemon:
    folder = settings.home / "mail"
    return Daemon(
        "the mail sink",
        [sys.executable, "-m", "shardpost.embedded.sink", str(folder), str(settings.smtp_port)],
        {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
        settings.home / "logs" / "smtp.log",
        settings.home / "run" / "smtp.pid",
    )


class MailHandler:
    """Writes each e-mail to the folder, atomically, before it is acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    async def handle_EHLO(  # noqa: N802
        self, _server: SMTP, session: Session, _envelope: Envelope, name: str, replies: list[str]
    ) -> list[str]:
        """Announce PIPELINING (RFC 2920): each command is answered, also those sent together."""
        session.host_name = name
        return [*replies[:-1], "250-PIPELINING", replies[-1]]

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Keep one e-mail, byte for byte as received; on a full disk it is rejected temporarily."""
        now = datetime.now(UTC)
        name = f"{now:%Y%m%dT%H%M%S.%f}-{os.getpid()}-{next(self._numbers):08d}.eml"
        hidden = self._folder / f".{name}.part"
        try:
            hidden.write_bytes(envelope.original_content or b"")
            hidden.rename(self._folder / name)
        except OSError as error:
            hidden.unlink(missing_ok=True)
            return f"452 4.3.1 cannot be stored: {error.strerror}"
        return f"250 2.0.0 kept as {name}"


async def serve(folder: Path, port: int) -> None:
    """Serve SMTP on loopback until SIGTERM or SIGINT."""
    folder.mkdir(parents=True, exist_ok=True)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    handler = MailHandler(folder)

    def session() -> SMTP:
        return SMTP(
            handler,
            hostname="localhost",
            ident="Shardpost's mail sink",
            data_size_limit=MAX_MESSAGE_BYTES,
            enable_SMTPUTF8=True,
        )

    server = await loop.create_server(session, daemons.LOOPBACK, port, backlog=512)
    async with server:
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
