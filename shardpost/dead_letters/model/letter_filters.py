"""Which letters are listed: by `letters list`, and on the page."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shardpost.dead_letters.model.letter_format import OPEN, LetterState
from shardpost.dead_letters.model.letter_history import Step

STATES = [str(state) for state in LetterState if state is not LetterState.DROPPED]
# Others are listed that were resolved in that time: so long `retries` has what became of them.
RECENT = timedelta(days=7)


@dataclass(frozen=True)
class ListFilters:
    """Which letters are listed; None lists all, of those that were resolved the recent ones."""

    state: str | None = None
    origin: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def closed_since(self, now: datetime) -> datetime | None:
        """Return since when a letter that is listed was resolved; None: whenever."""
        if self.state in OPEN:
            return now
        if self.since is None and self.until is None:
            return now - RECENT
        return self.since

    def matches(self, step: Step) -> bool:
        """Tell whether a letter with that newest step is listed."""
        return (
            self.state in (None, str(step.state))
            and self.origin in (None, step.origin_topic)
            and self.error in (None, step.fingerprint)
            and (self.since is None or step.at >= self.since)
            and (self.until is None or step.at < self.until)
        )
