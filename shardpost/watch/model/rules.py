"""The rules by which something needs a person, each with its page in the runbook."""

from dataclasses import dataclass

from shardpost.alerts.model.alert import Condition, Severity


@dataclass(frozen=True)
class Rule:
    """A rule: the name of its page in the runbook, how bad it is, and what it means for whom."""

    name: str
    severity: Severity
    meaning: str

    def broken(self, subject: str, text: str) -> Condition:
        """Return that it does not hold, of what, and what was found."""
        return Condition(self.name, subject, self.severity, text, self.meaning)


DATA_LOST = Rule(
    "data-lost",
    Severity.LOSS,
    "records were deleted before this reader read them, or may be at any moment: what it makes of"
    " them is wrong from then on",
)
TIME_TO_LOSS = Rule(
    "time-to-loss",
    Severity.RISK,
    "records will be deleted before this reader has read them, unless it reads on",
)
SNAPSHOT_AGE = Rule(
    "snapshot-age",
    Severity.RISK,
    "the holders are as of that time, and the weekly e-mail is not sent before a week's last"
    " records are compacted",
)
LETTERS_OVERDUE = Rule(
    "letters-overdue",
    Severity.RISK,
    "records that failed are not retried: their consumers go without them",
)
LETTERS_HELD = Rule(
    "letters-held",
    Severity.RISK,
    "letters with the same error are not retried until a person has looked at them",
)
LETTERS_PARKED = Rule(
    "letters-parked",
    Severity.RISK,
    "records failed for good: nobody retries them before a person redrives or discards them",
)
EMAILS_UNKNOWN = Rule(
    "emails-unknown",
    Severity.RISK,
    "it is not known whether clients got the e-mail of a week: they are not mailed again before a"
    " person says so",
)
EMAILS_FAILED = Rule(
    "emails-failed", Severity.RISK, "more clients got no e-mail of a week than the settings allow"
)
RUN_AGE = Rule(
    "run-age",
    Severity.RISK,
    "requests for the same key are refused as long as its run does not end",
)
DISK_FULL = Rule(
    "disk-full", Severity.RISK, "nothing can be compacted any more once the disk is full"
)
NOT_MEASURED = Rule(
    "not-measured",
    Severity.RISK,
    "what is wrong there is told to nobody, and what was wrong before may still be",
)
