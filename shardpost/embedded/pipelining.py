"""An SMTP server with command pipelining (RFC 2920)."""

import asyncio
from typing import Any

from aiosmtpd.smtp import SMTP

# Replies after which the server may close the connection.
_FINAL = (b"4", b"5", b"221")


class PipeliningSmtp(SMTP):
    """aiosmtpd's server, whose replies are sent together as long as more commands are there."""

    def __init__(self, handler: object, **options: Any) -> None:
        super().__init__(handler, **options)
        self._replies: list[bytes] = []

    async def push(self, status: str | bytes) -> None:
        """Send a reply, as soon as no more commands wait to be processed."""
        reply = status.encode() if isinstance(status, str) else status
        self._replies.append(reply + b"\r\n")
        if reply.startswith(_FINAL):
            self._send()
        elif len(self._replies) == 1:
            asyncio.get_running_loop().call_soon(self._send)
        await self._writer.drain()

    def _send(self) -> None:
        replies, self._replies = self._replies, []
        if replies and self.transport is not None:
            self._writer.write(b"".join(replies))
