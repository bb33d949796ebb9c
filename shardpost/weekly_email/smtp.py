"""SMTP: one connection for many mails, with the exact outcome of each.

Mails are not sent by smtplib's `sendmail()`, since all depends on whether the final dot was sent:
if the connection is lost before it, the mail was not sent; after it, the delivery is unknown. A
failing `sendall` has not sent its last byte, so the dot goes with the mail; then the server's reply
is read, since it may have refused the mail.

Each phase has its own timeout (smtp_server.py). For retries of connections see model/retry.py.
"""

import contextlib
import logging
import smtplib
import socket
import time
from collections.abc import Callable

from shardpost.errors import ShardpostError
from shardpost.weekly_email import smtp_server
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.retry import (
    Accepted,
    NoReply,
    NotSent,
    PermanentFailure,
    SmtpOutcome,
    TemporaryFailure,
    delay_after,
)

log = logging.getLogger(__name__)

# Replies to MAIL about the login, not the mail: it is required, or was rejected.
ABOUT_LOGIN = frozenset({530, 534, 535, 538})
CLOSING = 421
START_MAIL_INPUT = 354
DATA = b"DATA\r\n"
DOT = b".\r\n"
BLOCK = 65_536  # bytes that are written under one timeout
QUIT_SECONDS = 2
EARLY_REPLY_SECONDS = 2


class MailServerError(ShardpostError):
    """The mail server cannot be used at all, independent of the mail."""


class _ConnectionLostError(Exception):
    """The connection was lost before the final dot."""


class _ClosingError(_ConnectionLostError):
    """The server closed the connection in reply to MAIL (421): no mail is the cause."""


class SmtpSession:
    """One connection to the mail server, opened on demand and reopened when lost."""

    def __init__(self, server: smtp_server.SmtpServer, *, logs_attempts: bool = True) -> None:
        self._server, self._attempts = server, server.mail_attempts
        self._logs_attempts = logs_attempts
        self._smtp: smtplib.SMTP | None = None

    def open(self) -> None:
        """Connect unless connected; MailServerError after the last attempt of the retry policy."""
        attempt = 1
        while self._smtp is None:
            try:
                self._smtp = smtp_server.connect(self._server)
            except (OSError, smtplib.SMTPException) as error:
                if attempt >= self._attempts or smtp_server.is_final(error):
                    why = smtp_server.error_text(error)
                    raise MailServerError(
                        f"mail server {self._server.address}: no connection in {attempt} attempts:"
                        f" {why}; {smtp_server.cure_of(error, self._server)}"
                    ) from None
                self._wait_after(attempt, error)
                attempt += 1

    def send(self, mail: Mail, require: Callable[[], None] = lambda: None) -> SmtpOutcome:
        """Send one mail; if an older connection was lost, try again on a new one.

        `require` is called right before the content is sent; if it raises ShardpostError, nothing
        is sent. A server that closes even new connections in reply to MAIL is tried as often as an
        unreachable one.
        """
        closed = 0
        while True:
            is_new = self._smtp is None
            try:
                self.open()
                return self._transact(mail, require)
            except MailServerError as error:
                self.close()
                return NotSent(str(error), unreachable=True)
            except _ClosingError as error:
                self._drop()
                closed += is_new
                if closed >= self._attempts:
                    return NotSent(f"connection closed at once: {error}", unreachable=True)
                time.sleep(delay_after(closed) if is_new else 0)
            except ShardpostError as error:
                self._drop()
                return NotSent(str(error))
            except _ConnectionLostError as error:
                self._drop()
                if is_new:
                    return NotSent(f"connection lost before the mail was handed over: {error}")

    def _wait_after(self, attempt: int, error: Exception) -> None:
        delay = delay_after(attempt)
        if self._logs_attempts:
            log.warning(
                "mail server %s: attempt %d of %d to connect failed: %s; next attempt in %g s",
                self._server.address,
                attempt,
                self._attempts,
                smtp_server.error_text(error),
                delay,
            )
        time.sleep(delay)

    def close(self) -> None:
        """Send QUIT and close the connection."""
        if self._smtp is not None and self._smtp.sock is not None:
            self._smtp.sock.settimeout(QUIT_SECONDS)
            with contextlib.suppress(OSError, smtplib.SMTPException):
                self._smtp.quit()
        self._drop()

    def _drop(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            with contextlib.suppress(OSError):
                smtp.close()

    def _transact(self, mail: Mail, require: Callable[[], None]) -> SmtpOutcome:
        smtp = self._smtp
        assert smtp is not None  # noqa: S101 - open() made it
        if mail.needs_utf8 and not smtp.has_extn("smtputf8"):
            return PermanentFailure(
                f"{mail.recipient} needs SMTPUTF8, which the mail server does not offer"
            )
        try:
            refusal = self._transfer(smtp, mail, require)
        except (OSError, smtplib.SMTPException) as error:
            raise _ConnectionLostError(smtp_server.error_text(error)) from None
        return refusal or self._final_outcome(smtp)

    def _transfer(
        self, smtp: smtplib.SMTP, mail: Mail, require: Callable[[], None]
    ) -> SmtpOutcome | None:
        """Send the whole mail; return its outcome if the server refused it early, else None."""
        if (refusal := self._send_commands(smtp, _commands(smtp, mail))) is not None:
            outcome = self._refused(*refusal)
            if self._smtp is not None:
                self._reset(smtp)
            return outcome
        require()
        # Dots at the start of a line are doubled (RFC 5321, 4.5.2); content ends with CRLF.
        first = b"." if mail.content.startswith(b".") else b""
        content = first + mail.content.replace(b"\r\n.", b"\r\n..") + DOT
        sock = _limited(smtp, self._server.timeout("block"))
        try:
            # Not smtp.send(), which closes the connection before the reply can be read.
            for start in range(0, len(content), BLOCK):
                sock.sendall(content[start : start + BLOCK])
        except OSError as error:
            return self._early_reply(smtp, error)
        return None

    def _early_reply(self, smtp: smtplib.SMTP, error: OSError) -> SmtpOutcome:
        """Return the refusal of a server that stopped reading a mail before the dot.

        Raises _ConnectionLostError if it sent no reply, or none about this mail.
        """
        try:
            _limited(smtp, EARLY_REPLY_SECONDS)
            code, text = smtp.getreply()
        except (OSError, smtplib.SMTPException):
            raise _ConnectionLostError(smtp_server.error_text(error)) from None
        if code == CLOSING:
            raise _ConnectionLostError(f"{code} {smtp_server.reply_text(text)}")
        outcome = self._refused(code, text)
        self._drop()
        return outcome

    def _send_commands(self, smtp: smtplib.SMTP, commands: list[bytes]) -> tuple[int, bytes] | None:
        """Send MAIL, RCPT and DATA, together if the server offers PIPELINING (RFC 2920).

        Return the first negative reply, or None if the server expects the mail.
        """
        is_pipelined = smtp.has_extn("pipelining")
        _limited(smtp, self._server.timeout("command"))
        if is_pipelined:
            smtp.send(b"".join(commands))
        for number, command in enumerate(commands, 1):
            if command == DATA:
                _limited(smtp, self._server.timeout("data"))
            if not is_pipelined:
                smtp.send(command)
            code, text = smtp.getreply()
            if number == 1 and code == CLOSING:
                raise _ClosingError(f"{code} {smtp_server.reply_text(text)}")
            is_positive = code == START_MAIL_INPUT if command == DATA else code // 100 == 2
            if not is_positive:
                if is_pipelined:
                    self._read_replies(smtp, len(commands) - number)
                return code, text
        return None

    def _read_replies(self, smtp: smtplib.SMTP, count: int) -> None:
        """Read the replies to the commands that were pipelined after a refused command.

        If the server still expects the mail, the connection is closed.
        """
        try:
            if START_MAIL_INPUT in [smtp.getreply()[0] for _ in range(count)]:
                self._drop()
        except (OSError, smtplib.SMTPException):
            self._drop()

    def _final_outcome(self, smtp: smtplib.SMTP) -> SmtpOutcome:
        try:
            _limited(smtp, self._server.timeout("end"))
            code, text = smtp.getreply()
        except (OSError, smtplib.SMTPException) as error:
            self._drop()
            return NoReply(f"no reply to the end of the mail: {smtp_server.error_text(error)}")
        if code // 100 == 2:
            return Accepted()
        try:
            return self._refused(code, text)
        except _ConnectionLostError as error:
            self._drop()
            return NoReply(f"no valid reply to the end of the mail: {error}")

    def _refused(self, code: int, text: bytes) -> TemporaryFailure | PermanentFailure:
        """Return what a negative reply means; raises _ConnectionLostError for a non-SMTP reply."""
        reason = f"{code} {smtp_server.reply_text(text)}"
        if code in ABOUT_LOGIN:
            raise MailServerError(
                f"mail server {self._server.host} requires a valid login: {reason}; see"
                " SHARDPOST_SMTP_USER, _PASSWORD and _TLS"
            )
        if code == CLOSING:
            self._drop()
        match code // 100:
            case 4:
                return TemporaryFailure(reason)
            case 5:
                return PermanentFailure(reason)
        raise _ConnectionLostError(f"unexpected reply: {reason}")

    def _reset(self, smtp: smtplib.SMTP) -> None:
        """Prepare the connection for the next mail; the outcome of this mail is already known."""
        try:
            code, _ = smtp.rset()
        except (OSError, smtplib.SMTPException):
            code = CLOSING
        if code // 100 != 2:
            self._drop()


def _limited(smtp: smtplib.SMTP, seconds: float) -> socket.socket:
    """Set the timeout of the next phase of a connection; return its socket."""
    if smtp.sock is None:  # smtplib has closed it, after an error
        raise smtplib.SMTPServerDisconnected("the connection was closed")
    smtp.sock.settimeout(seconds)
    return smtp.sock


def _commands(smtp: smtplib.SMTP, mail: Mail) -> list[bytes]:
    size = f" SIZE={len(mail.content)}" if smtp.has_extn("size") else ""
    utf8 = " BODY=8BITMIME SMTPUTF8" if mail.needs_utf8 else ""
    encoding = "utf-8" if mail.needs_utf8 else "ascii"
    lines = (f"MAIL FROM:<{mail.sender}>{size}{utf8}", f"RCPT TO:<{mail.recipient}>")
    if any(end in line for line in lines for end in "\r\n"):
        raise ValueError(f"expected addresses without line breaks, found {lines}")
    return [*(f"{line}\r\n".encode(encoding) for line in lines), DATA]
