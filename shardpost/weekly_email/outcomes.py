"""What becomes of a client by the outcome of its mail: done, tried again, or left open."""

from collections.abc import Iterable

from shardpost.settings import Settings
from shardpost.weekly_email.delivery_records import DeliveryRecords
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.mail_retry_policy import (
    Final,
    LeaveOpen,
    MailRetryPolicy,
    Retry,
    next_step,
)
from shardpost.weekly_email.model.refusals import Refusal, RefusalLimits, Refusals
from shardpost.weekly_email.model.smtp_outcome import (
    Accepted,
    PermanentFailure,
    SmtpOutcome,
    TemporaryFailure,
)
from shardpost.weekly_email.retry_queue import Attempt, RetryQueue


class Outcomes:
    """The outcomes of one shard's run."""

    def __init__(self, settings: Settings, records: DeliveryRecords, retries: RetryQueue) -> None:
        self._records, self._retries = records, retries
        self._policy = MailRetryPolicy.of(settings)
        self.refusals = Refusals(RefusalLimits.of(settings))
        self.left_open: list[str] = []

    def apply(self, attempt: Attempt, outcome: SmtpOutcome) -> None:
        """Do what follows from the outcome of an attempt."""
        if attempt.number == 1 and isinstance(
            outcome, Accepted | PermanentFailure | TemporaryFailure
        ):
            is_deferred = isinstance(outcome, TemporaryFailure)
            self.refusals.count_first_answer(is_deferred=is_deferred)
        match next_step(outcome, attempt.number, self._policy, attempt.lost):
            case Final(DeliveryState.FAILED, reason):
                self._refused(attempt, outcome, reason or "")
            case Final(state, reason):
                self._records.finish(attempt.task.entry(state, reason), attempt.task.before)
                if state is DeliveryState.SENT:
                    self._fail(self.refusals.accept())
            case Retry(reason) as retry:
                self._records.revert(attempt, reason)
                self._retries.add(attempt, retry)
            case LeaveOpen(reason):
                self._leave_open(attempt, reason)

    def finish(self) -> None:
        """Fail the refused clients of which the shard's own answers say that they are the cause."""
        self._fail(self.refusals.finish())

    def _refused(self, attempt: Attempt, outcome: SmtpOutcome, reason: str) -> None:
        task = attempt.task
        entry = task.entry(DeliveryState.FAILED, reason)
        if task.before is DeliveryState.FAILED:  # it says nothing about the server
            self._records.finish(entry, task.before)
        elif isinstance(outcome, TemporaryFailure) and self.refusals.is_deferring:
            self._leave_open(attempt, f"{reason}, as to many others")
            self._fail(self.refusals.refuse(reason, None))
        else:
            self._records.revert(attempt, f"{reason}; not final before others are accepted")
            self._fail(self.refusals.refuse(reason, Refusal(entry, task.before)))

    def _fail(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self._records.finish(refusal.entry, refusal.before)

    def _leave_open(self, attempt: Attempt, reason: str) -> None:
        self._records.revert(attempt, reason)
        self.left_open.append(f"{attempt.task.mail.client}: {reason}")
