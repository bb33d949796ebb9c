"""SMTP: one connection that carries many mails, and exactly what became of each.

Mails are spoken here and not by smtplib's `sendmail()`, since all depends on whether the final dot
had been sent: before it a lost connection means that the mail was not sent, after it that nobody
can say. A `sendall` that fails has kept its last byte back, so the dot goes with the mail.
"""

import contextlib
import smtplib
import socket
import ssl
import time
from functools import lru_cache

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.model.delivery import (
    Accepted,
    NoReply,
    NotSent,
    Outcome,
    PermanentFailure,
    TemporaryFailure,
)
from shardpost.weekly_email.model.holdings import neutral
from shardpost.weekly_email.model.message import Mail

# Answers to MAIL that speak of us and not of the mail: authentication is wanted, or not good
# enough.
OURS = frozenset({530, 534, 535, 538})
CLOSING = 421
NOT_KNOWN = frozenset({500, 502})
GO_ON = 354
DATA = b"DATA\r\n"
DOT = b".\r\n"
QUIT_SECONDS = 2
LONGEST_REASON = 300


class MailServerError(ShardpostError):
    """The mail server cannot be spoken to at all; this is no mail's fault."""


class _LostError(Exception):
    """The connection was lost before the final dot."""


class SmtpSession:
    """One connection to the mail server, opened when it is needed and again when it was lost."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._smtp: smtplib.SMTP | None = None

    def open(self) -> None:
        """Connect unless connected.

        MailServerError after waiting longer and longer, within a bound.
        """
        settings, delay, attempt = self._settings, self._settings.mail_first_delay, 1
        while self._smtp is None:
            try:
                self._smtp = _connected(settings)
            except (OSError, smtplib.SMTPException) as error:
                if attempt >= settings.mail_attempts or isinstance(error, _HOPELESS):
                    raise MailServerError(
                        f"mail server {settings.mail_server}:{settings.smtp_port}: no connection in"
                        f" {attempt} attempts: {_said(error)}; see SHARDPOST_SMTP_…"
                    ) from None
                time.sleep(delay)
                attempt, delay = attempt + 1, delay * settings.mail_delay_factor

    def send(self, mail: Mail) -> Outcome:
        """Send one mail; where an older connection turns out to be lost, once more on a new one."""
        while True:
            fresh = self._smtp is None
            try:
                self.open()
                return self._transact(mail)
            except MailServerError as error:
                self.close()
                return NotSent(str(error), unreachable=True)
            except _LostError as error:
                self._drop()
                if fresh:
                    return NotSent(f"connection lost before the mail was handed over: {error}")

    def close(self) -> None:
        """Say QUIT and close the connection."""
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

    def _transact(self, mail: Mail) -> Outcome:
        smtp = self._smtp
        assert smtp is not None  # noqa: S101 - open() made it
        if mail.needs_utf8 and not smtp.has_extn("smtputf8"):
            return PermanentFailure(
                f"{mail.recipient} needs SMTPUTF8, which the mail server does not offer"
            )
        try:
            refusal = self._hand_over(smtp, mail)
        except (OSError, smtplib.SMTPException) as error:
            raise _LostError(_said(error)) from None
        return refusal or self._end(smtp)

    def _hand_over(self, smtp: smtplib.SMTP, mail: Mail) -> Outcome | None:
        """Say all of a mail; return what the server had against it before, or None."""
        refusal = self._announce(smtp, _commands(smtp, mail))
        if refusal is None:
            smtp.send(_stuffed(mail.content) + DOT)
            return None
        outcome = self._judged(*refusal)
        if self._smtp is not None:
            self._reset(smtp)
        return outcome

    def _announce(self, smtp: smtplib.SMTP, commands: list[bytes]) -> tuple[int, bytes] | None:
        """Say MAIL, RCPT and DATA, at once where the server takes that (RFC 2920).

        Return the first answer that is a no, or None where the server wants the mail.
        """
        at_once = smtp.has_extn("pipelining")
        if at_once:
            smtp.send(b"".join(commands))
        for number, command in enumerate(commands, 1):
            if not at_once:
                smtp.send(command)
            code, text = smtp.getreply()
            is_yes = code == GO_ON if command == DATA else code // 100 == 2
            if not is_yes:
                if at_once:
                    self._catch_up(smtp, len(commands) - number)
                return code, text
        return None

    def _catch_up(self, smtp: smtplib.SMTP, answers: int) -> None:
        """Hear the answers to what was said behind a refused command.

        A server that wants the mail all the same gets none: it is left.
        """
        try:
            if GO_ON in [smtp.getreply()[0] for _ in range(answers)]:
                self._drop()
        except (OSError, smtplib.SMTPException):
            self._drop()

    def _end(self, smtp: smtplib.SMTP) -> Outcome:
        try:
            code, text = smtp.getreply()
        except (OSError, smtplib.SMTPException) as error:
            self._drop()
            return NoReply(f"no answer to the end of the mail: {_said(error)}")
        if code // 100 == 2:
            return Accepted()
        try:
            return self._judged(code, text)
        except _LostError as error:
            self._drop()
            return NoReply(f"no proper answer to the end of the mail: {error}")

    def _judged(self, code: int, text: bytes) -> TemporaryFailure | PermanentFailure:
        """Return what an answer other than yes means; _LostError if it is none that SMTP knows."""
        reason = f"{code} {_text(text)}"
        if code in OURS:
            raise MailServerError(f"mail server {self._settings.mail_server} refuses us: {reason}")
        if code == CLOSING:
            self._drop()
        match code // 100:
            case 4:
                return TemporaryFailure(reason)
            case 5:
                return PermanentFailure(reason)
        raise _LostError(f"an answer out of turn: {reason}")

    def _reset(self, smtp: smtplib.SMTP) -> None:
        """Make the connection fit for the next mail; what became of this one is known already."""
        try:
            code, _ = smtp.rset()
        except (OSError, smtplib.SMTPException):
            code = CLOSING
        if code // 100 != 2:
            self._drop()


# Waiting does not help against these; trying a password again and again locks accounts.
_HOPELESS = (
    smtplib.SMTPAuthenticationError,
    smtplib.SMTPNotSupportedError,
    ssl.SSLCertVerificationError,
)


def _connected(settings: Settings) -> smtplib.SMTP:
    tls = settings.smtp_tls
    # Reading the machine's certificates takes a while.
    context = None if tls == "none" else ssl.create_default_context()
    host, port, wait = settings.mail_server, settings.smtp_port, settings.smtp_timeout
    smtp = (
        smtplib.SMTP_SSL(host, port, _own_name(), timeout=wait, context=context)
        if tls == "tls"
        else smtplib.SMTP(host, port, _own_name(), timeout=wait)
    )
    try:
        if smtp.sock is not None:
            smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _greet(smtp)
        if tls == "starttls":
            smtp.starttls(context=context)
            _greet(smtp)
        if settings.smtp_user is not None:
            smtp.login(settings.smtp_user, settings.smtp_password or "")
    except BaseException:
        smtp.close()
        raise
    return smtp


def _greet(smtp: smtplib.SMTP) -> None:
    """Say EHLO, or HELO to a server that does not know it; smtplib says HELO after any refusal."""
    code, text = smtp.ehlo()
    if code in NOT_KNOWN:
        code, text = smtp.helo()
    if code // 100 != 2:
        raise smtplib.SMTPHeloError(code, _text(text))


@lru_cache
def _own_name() -> str:
    name = socket.getfqdn()
    return name if "." in name else "[127.0.0.1]"


def _commands(smtp: smtplib.SMTP, mail: Mail) -> list[bytes]:
    size = f" SIZE={len(mail.content)}" if smtp.has_extn("size") else ""
    utf8 = " BODY=8BITMIME SMTPUTF8" if mail.needs_utf8 else ""
    encoding = "utf-8" if mail.needs_utf8 else "ascii"
    lines = (f"MAIL FROM:<{mail.sender}>{size}{utf8}", f"RCPT TO:<{mail.recipient}>")
    if any(end in line for line in lines for end in "\r\n"):
        raise ValueError(f"expected addresses of one line, found {lines}")
    return [*(f"{line}\r\n".encode(encoding) for line in lines), DATA]


def _stuffed(content: bytes) -> bytes:
    """Double the dots that begin a line (RFC 5321, 4.5.2); content ends with CRLF."""
    first = b"." if content.startswith(b".") else b""
    return first + content.replace(b"\r\n.", b"\r\n..")


def _said(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_text(error.smtp_error)}"
    return str(error) or type(error).__name__


def _text(answer: bytes | str) -> str:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return neutral(text, LONGEST_REASON)
