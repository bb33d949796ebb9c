"""A redrive request: which parked letters a person wants redriven or discarded, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shardpost.dead_letters.model.letter_format import HEADERS_BYTES, Malformed, name_of
from shardpost.dead_letters.model.letter_history import ListFilters
from shardpost.dead_letters.model.retry_policy import unknown_origin
from shardpost.dead_letters.model.transition_records import ParkedGroup, parked_count, parse_parked
from shardpost.decisions import Kind
from shardpost.errors import UsageError
from shardpost.instants import instant_of
from shardpost.kafka.records import Record
from shardpost.topics.declared import LETTER_BYTES, STORED_BYTES
from shardpost.values.retry_settings import RetryRules

# A letter parked this often by one error is redriven only with --again.
REPEATED = 2
# The largest value with which a letter and all its headers still fit into the store.
VALUE_BYTES = STORED_BYTES - LETTER_BYTES - HEADERS_BYTES


def require_fitting(value: bytes, name: str) -> None:
    """Raise UsageError for a value that is larger; `name` is what it was given as."""
    if len(value) > VALUE_BYTES:
        raise UsageError(
            f"{name}: expected at most {VALUE_BYTES} bytes, the limit of a letter, found more"
        )


@dataclass(frozen=True)
class Shown:
    """What a plan has shown: all before these end offsets of the parking lot with that topic id."""

    topic_id: str
    ends: Mapping[int, int]

    @classmethod
    def parse(cls, text: str) -> "Shown":
        """Parse the value of `--up-to`; raises UsageError if no plan printed it."""
        topic_id, *ends = text.split(":")
        try:
            parts = (one.split("=") for one in ends)
            return cls(topic_id, {int(at): int(end) for at, end in parts})
        except ValueError:
            why = f"expected the value that a plan printed, found {text[:50]!r}"
            raise UsageError(f"up to: {why}") from None

    def __str__(self) -> str:
        ends = (f":{number}={end}" for number, end in self.ends.items() if end)
        return self.topic_id + "".join(ends)

    def before(self, partition: int, offset: int) -> "Shown":
        """Return it limited to a letter, partition by partition."""
        ends = {number: end for number, end in self.ends.items() if number < partition}
        return Shown(self.topic_id, {**ends, partition: offset + 1})


@dataclass(frozen=True)
class RedriveRequest:
    """Redrive or discard; `value` replaces that of the letter.

    With `allow_repeated`, letters that one error parked REPEATED times are redriven, too.
    """

    filters: ListFilters
    is_redrive: bool
    who: str
    why: str
    now: datetime
    allow_repeated: bool = False
    value: bytes | None = None

    @property
    def kind(self) -> Kind:
        """The text for the record in `decisions`."""
        if not self.is_redrive:
            return Kind.DISCARDED
        return Kind.REDRIVEN if self.value is None else Kind.EDITED

    def selects(self, record: Record) -> bool:
        """Tell whether a record of the parking lot is selected; one named by its id always is."""
        ids = self.filters.ids
        return self._is_chosen(record) if ids is None else name_of(record.key) in ids

    def _is_chosen(self, record: Record) -> bool:
        """Tell whether a record matches all but the ids; its time is when it was parked."""
        group, at = ParkedGroup.of(dict(record.headers)), instant_of(record.timestamp)
        return self.filters.choose(*group, at)

    def refusal(self, record: Record, rules: RetryRules) -> str | None:
        """Return why the request cannot be applied to a parked letter, or None."""
        if not self._is_chosen(record):
            return "parked, but excluded by --origin, --error, --since or --until"
        if not self.is_redrive:
            return None
        letter = parse_parked(record)
        if isinstance(letter, Malformed):
            return f"malformed, it can only be discarded: {letter.reason}"
        if letter.origin_topic in rules.retry_only_topics:
            return f"{unknown_origin(letter)}; it can only be discarded"
        count = parked_count(dict(record.headers))
        if count >= REPEATED and not self.allow_repeated:
            return f"parked {count} times by the same error: fix its cause first, or add --again"
        return None
