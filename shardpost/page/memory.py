"""What the page remembers from one request to the next, in the process that serves it."""

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardpost.dead_letters.letter_index import KeptIndex
    from shardpost.weekly_email.kept_folds import KeptFolds
    from shardpost.weekly_email.week_totals import KeptTotals


class Memory:
    """The memory of one app; its parts are imported when a page first asks for them."""

    @cached_property
    def letters(self) -> "KeptIndex":
        """The index of letters."""
        from shardpost.dead_letters.letter_index import KeptIndex

        return KeptIndex()

    @cached_property
    def ledger(self) -> "KeptFolds":
        """The folds of the ledger."""
        from shardpost.weekly_email.kept_folds import KeptFolds

        return KeptFolds()

    @cached_property
    def totals(self) -> "KeptTotals":
        """The counts of all weeks."""
        from shardpost.weekly_email.week_totals import KeptTotals

        return KeptTotals(self.ledger)
