"""A mail server that misbehaves as a test says, and counts what it took."""

import re
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# At a stage (connect, EHLO, MAIL, RCPT, DATA, end) and for a recipient, what the server does: a
# reply, or
HANG, DROP, TAKE_AND_DROP, TAKE_AND_HANG = "hang", "drop", "take and drop", "take and hang"
SAY_AND_DROP = "; then drop"
Script = Callable[[str, str], str | None]

EHLO = "250-here\r\n250 SMTPUTF8"
PIPELINING = "250-here\r\n250-PIPELINING\r\n250 SMTPUTF8"
_GOOD = {"connect": "220 hello", "DATA": "354 go on"}
_MESSAGE_ID = re.compile(rb"^Message-ID: (\S+)", re.MULTILINE)


@dataclass
class MailServer:
    """What the server saw.

    For each recipient how often a mail was taken, and under which Message-IDs.
    """

    script: Script
    port: int = 0
    ehlo: str = EHLO
    taken: Counter[str] = field(default_factory=Counter)
    message_ids: dict[str, set[str]] = field(default_factory=dict)
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    contents: dict[str, bytes] = field(default_factory=dict)
    connections: int = 0
    ending: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, recipient: str, content: bytes) -> None:
        with self.lock:
            self.taken[recipient] += 1
            self.contents[recipient] = content
            found = _MESSAGE_ID.search(content)
            self.message_ids.setdefault(recipient, set()).add(found[1].decode() if found else "")


class _LeaveError(Exception):
    pass


class _Conversation(socketserver.StreamRequestHandler):
    server: Any

    def handle(self) -> None:
        mail: MailServer = self.server.mail
        with mail.lock:
            mail.connections += 1
        self.recipient = ""
        try:
            self._say("connect")
            for line in self.rfile:
                self._answer(line.decode().strip())
        except (_LeaveError, OSError):
            return

    def _answer(self, line: str) -> None:
        verb = line.split()[0].upper() if line else ""
        match verb:
            case "EHLO":
                self._say("EHLO", self.server.mail.ehlo)
            case "RCPT":
                self.recipient = line[line.index("<") + 1 : line.rindex(">")]
                self._say("RCPT")
            case "DATA":
                if self._say("DATA").startswith("354"):
                    self._end(self._content())
            case "QUIT":
                self._send("221 bye")
                raise _LeaveError
            case "MAIL" | "RSET" | "NOOP":
                self._say(verb)
            case _:
                self._send("500 what?")

    def _content(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                raise _LeaveError
            lines.append(line[1:] if line.startswith(b".") else line)
        return b"".join(lines)

    def _end(self, content: bytes) -> None:
        does = self._asked("end") or "250 taken"
        if does.startswith(("250", "take")):
            self.server.mail.take(self.recipient, content)
        self._do(does.removeprefix("take and "))

    def _say(self, stage: str, good: str = "250 fine") -> str:
        does = self._asked(stage) or _GOOD.get(stage, good)
        self._do(does)
        return does

    def _asked(self, stage: str) -> str | None:
        with self.server.mail.lock:
            self.server.mail.seen[stage, self.recipient] += 1
        does: str | None = self.server.mail.script(stage, self.recipient)
        return does

    def _do(self, does: str) -> None:
        if does == HANG:
            self.server.mail.ending.wait()
        if does in (HANG, DROP):
            raise _LeaveError
        self._send(does.removesuffix(SAY_AND_DROP))
        if does.endswith(SAY_AND_DROP):
            raise _LeaveError

    def _send(self, reply: str) -> None:
        self.wfile.write(f"{reply}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def get_request(self) -> tuple[socket.socket, Any]:
        found, address = super().get_request()
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found, address


def slow(seconds: float) -> Script:
    """Take so long for the end of each mail, so that a send has a middle."""

    def script(stage: str, _recipient: str) -> None:
        if stage == "end":
            time.sleep(seconds)

    return script


@contextmanager
def mail_server(
    script: Script = lambda _stage, _recipient: None,
    port: int = 0,
    ehlo: str | None = None,
    host: str = "127.0.0.1",
) -> Iterator[MailServer]:
    """Run one at an address of this machine until the block ends."""
    with _Server((host, port), _Conversation) as server:
        mail = MailServer(script, server.server_address[1], ehlo or MailServer.ehlo)
        server.mail = mail  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield mail
        mail.ending.set()
        server.shutdown()
        thread.join()
