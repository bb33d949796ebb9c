"""A record of Kafka as it is shown: laid out, with its state, and with what became of it."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardpost.instants import instant_of
from shardpost.page.record_outcomes import Outcome
from shardpost.page.rendering import Link, Visit
from shardpost.page.value_layout import Layout, laid_out, summary

if TYPE_CHECKING:
    from shardpost.kafka.record_pages import State
    from shardpost.kafka.records import Record


@dataclass(frozen=True)
class ShownRecord:
    """A record, of whose value about `most` characters are shown.

    `state` is None of one that is committed for certain, since only such ones were read.
    """

    record: "Record"
    most: int
    outcome: Outcome | None = None
    state: "State | None" = None

    @property
    def time(self) -> datetime | None:
        """Its timestamp; None where an old client gave it none."""
        at = self.record.timestamp
        return None if at < 0 else instant_of(at)

    @property
    def key(self) -> str | None:
        """Its key as text, or in base64."""
        return _text(self.record.key)

    @property
    def headers(self) -> list[tuple[str, str | None]]:
        """Its headers, likewise."""
        return [(name, _text(value)) for name, value in self.record.headers]

    @property
    def summary(self) -> str:
        """Its value in one line."""
        return summary(self.record.value)

    @cached_property
    def layout(self) -> Layout:
        """Its value, laid out."""
        return laid_out(self.record.value, self.most)

    @property
    def uncommitted(self) -> str:
        """What it is, if it is not committed."""
        if self.state is None or self.state.is_committed:
            return ""
        return "not committed yet" if self.state.is_open else "aborted"

    @property
    def became(self) -> str | None:
        """What became of it, in words; None where nothing is known."""
        said = (self.uncommitted, self.outcome.text if self.outcome else "")
        return "; ".join(filter(None, said)) or None

    def link(self, visit: Visit) -> Link:
        """Return a link to its own page."""
        record = self.record
        place = {"partition": str(record.partition), "offset": str(record.offset)}
        url = visit.url("records/record", topic=record.topic, **place)
        return Link(str(record.offset), url)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; its value is as it is shown, bounded."""
        record, layout = self.record, self.layout
        return {
            **record.coordinates._asdict(),
            "timestamp": self.time and self.time.isoformat(timespec="milliseconds"),
            "append_time": record.is_append_time,
            "key": self.key,
            "headers": [list(header) for header in self.headers],
            "form": layout.kind,
            "value": None if record.value is None else layout.text,
            "cut": layout.is_cut,
            "size": layout.size,
            "became": self.became,
        }


def _text(raw: str | bytes | None) -> str | None:
    from shardpost.dead_letters.letter_details import text_or_base64

    return text_or_base64(raw)
