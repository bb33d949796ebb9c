"""When the share of bad answers is too large: a server that fails, and not single mails.

A one-sided CUSUM (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954): no window of
the last so many answers, so that it works for three mails as for three million.
"""

from dataclasses import dataclass, field


@dataclass
class ShareAlarm:
    """Rings when `most_in_row` answers in a row are bad, or more than `share` of a longer series.

    A series begins with a bad answer. Its score is how many more are bad than `share` of it. It
    rings as soon as the score is that of `most_in_row` bad ones in a row; a series whose score is
    back at zero is over, and no more than `share` of it were bad. A share of 1 never rings.
    """

    most_in_row: int
    share: float
    bad: int = field(default=0, init=False)
    good: int = field(default=0, init=False)
    is_ringing: bool = field(default=False, init=False)

    def record(self, *, is_bad: bool) -> None:
        """Count one answer."""
        if is_bad:
            self.bad += 1
        elif self.bad:
            self.good += 1
        score = self._excess(self.bad, self.bad + self.good)
        if score <= 0:
            self.bad, self.good, self.is_ringing = 0, 0, False
        elif score >= self._excess(self.most_in_row, self.most_in_row):
            self.is_ringing = True

    @property
    def is_clear(self) -> bool:
        """Whether no series is open."""
        return not self.bad

    def _excess(self, bad: int, answers: int) -> float:
        return bad - self.share * answers
