"""An SMTP server that takes commands without being waited for (RFC 2920)."""

import asyncio
from typing import Any

from aiosmtpd.smtp import SMTP

# Answers after which the server may close the connection.
_LAST = (b"4", b"5", b"221")


class Pipelining(SMTP):
    """aiosmtpd's server, which takes them as it is; answers that are ready together go together."""

    def __init__(self, handler: Any, **how: Any) -> None:
        super().__init__(handler, **how)
        self._answers: list[bytes] = []

    async def push(self, status: str | bytes) -> None:
        """Answer, as soon as no more commands are there to be dealt with."""
        answer = status.encode() if isinstance(status, str) else status
        self._answers.append(answer + b"\r\n")
        if answer.startswith(_LAST):
            self._say()
        elif len(self._answers) == 1:
            asyncio.get_running_loop().call_soon(self._say)
        await self._writer.drain()

    def _say(self) -> None:
        answers, self._answers = self._answers, []
        if answers and self.transport is not None:
            self._writer.write(b"".join(answers))
