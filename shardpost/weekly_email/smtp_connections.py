"""The connections of one shard to the mail server: one mail on each at a time."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from shardpost.settings import Settings
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.retry import NoReply, NotSent, SmtpOutcome
from shardpost.weekly_email.smtp import MailServerError, SmtpSession

log = logging.getLogger(__name__)


class SmtpConnections:
    """Up to `mail_connections` sessions; one that cannot be opened is given up."""

    def __init__(self, settings: Settings) -> None:
        # The others go through the same: once in the log is enough.
        self._sessions = [
            SmtpSession(settings, logs_attempts=number == 0)
            for number in range(settings.mail_connections)
        ]
        self._pool = ThreadPoolExecutor(settings.mail_connections, "smtp")

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, wanted: int) -> None:
        """Open that many, or continue with fewer; MailServerError if none can be opened."""
        sessions = self._sessions[:wanted]
        errors = list(self._pool.map(_open, sessions))
        failed = [error for error in errors if error is not None]
        if failed and len(failed) == len(errors):
            raise failed[0]
        self._remove([session for session, error in zip(sessions, errors, strict=True) if error])

    def send(self, mails: Sequence[Mail], require: Callable[[], None]) -> list[SmtpOutcome]:
        """Send mails in parallel, at most `len` of them; return what became of each.

        `require` is called before the content of each is sent, by several threads; none is, if it
        raises ShardpostError.
        """
        sessions = self._sessions[: len(mails)]
        others = self._pool.map(_send, sessions[1:], mails[1:], repeat(require))
        outcomes = [_send(sessions[0], mails[0], require), *others]
        pairs = zip(sessions, outcomes, strict=True)
        self._remove([session for session, outcome in pairs if _is_unreachable(outcome)])
        return outcomes

    def close(self) -> None:
        """Close all."""
        self._pool.shutdown()
        for session in self._sessions:
            session.close()

    def _remove(self, failed: list[SmtpSession]) -> None:
        if failed:
            self._sessions = [session for session in self._sessions if session not in failed]
            log.warning("continuing with %d connections to the mail server", len(self))


def _is_unreachable(outcome: SmtpOutcome) -> bool:
    return isinstance(outcome, NotSent) and outcome.unreachable


def _open(session: SmtpSession) -> MailServerError | None:
    try:
        session.open()
    except MailServerError as error:
        return error
    return None


def _send(session: SmtpSession, mail: Mail, require: Callable[[], None]) -> SmtpOutcome:
    try:
        return session.send(mail, require)
    except Exception as error:
        log.exception("internal error while a mail was sent")
        return NoReply(f"unexpected {type(error).__name__}: {error}")
