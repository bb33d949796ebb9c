"""An import: compare a list of positions with what is open, and write the difference.

Under a lock. One that is applied fences older writers first, and only then looks at what is there:
so what it compares with has all that a run before it wrote.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardpost import locks
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.kafka.records import Outgoing
from shardpost.kafka.topic_limits import largest_batch, topic_config
from shardpost.position_import.applied_imports import applied_import, record_of
from shardpost.position_import.base import find_base
from shardpost.position_import.import_writer import ImportWriter
from shardpost.position_import.job import IMPORT_POSITIONS
from shardpost.position_import.model import import_ids
from shardpost.position_import.model.import_ids import HEADER, AppliedImport
from shardpost.position_import.model.plan import WRITTEN
from shardpost.position_import.model.request import ImportRequest
from shardpost.position_import.spark.comparison import Comparison, compare
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult
from shardpost.steps import step

log = logging.getLogger(__name__)


def import_positions(settings: Settings, request: ImportRequest) -> JobResult:
    """Plan an import, or carry it out; LockedError beside another one.

    NEEDS_ATTENTION, and nothing is written, if the plan is refused.
    """
    with locks.exclusive(settings, IMPORT_POSITIONS.name, IMPORT_POSITIONS.name):
        config = topic_config(settings, settings.topic("positions"))
        if not request.is_applied:
            return _import(settings, request, largest_batch(config), None)
        with closing(ImportWriter(settings, config)) as writer:
            writer.open()
            return _import(settings, request, largest_batch(config), writer)


def _import(
    settings: Settings, request: ImportRequest, largest: int, writer: ImportWriter | None
) -> JobResult:
    step("ends")
    base = find_base(settings)
    step("source")
    with compare(settings, base, request, largest) as found:
        import_id, before = import_ids.choose(
            request.import_id,
            found.content,
            found.unread_id,
            differs=bool(found.plan.records),
            lookup=partial(applied_import, settings),
        )
        planned = _Import(settings, request, found, import_id, before)
        written = None
        if writer is not None and before is None and planned.refusal is None:
            step("write")
            written = writer.write(planned.records(), planned.decided(), base.ends)
        return (NEEDS_ATTENTION if planned.refusal else DONE), planned.as_json(written)


@dataclass(frozen=True)
class _Import:
    """A planned import; `before` is that it was applied already."""

    settings: Settings
    request: ImportRequest
    found: Comparison
    import_id: str
    before: AppliedImport | None

    @property
    def refusal(self) -> str | None:
        """Why it may not be applied; None of one that may, or was."""
        given = self.request.max_closed
        max_closed = self.settings.import_max_closed if given is None else given
        return None if self.before else self.found.plan.refusal(max_closed)

    def records(self) -> Iterator[Outgoing]:
        """Yield the records of the difference."""
        topic, header = self.settings.topic("positions"), (HEADER, self.import_id.encode())
        for key, value, partition in self.found.written():
            yield Outgoing(
                topic, key.encode(), None if value is None else bytes(value), [header], partition
            )

    def decided(self) -> Outgoing:
        """Return the record that says that it was applied."""
        counts = ", ".join(f"{self.found.plan.count(change)} {change}" for change in WRITTEN)
        why = self.request.why or f"{self.request.source}: {counts}"
        applied = AppliedImport(
            self.import_id, self.found.content, self.request.who, self.request.now
        )
        return record_of(self.settings, applied, why)

    def as_json(self, written: int | None) -> dict[str, Any]:
        """Return the result; `written` records by this run, None if it did not apply it."""
        return {
            "import_id": self.import_id,
            "source": str(self.request.source),
            **self.found.plan.as_json(),
            "applied": written is not None or self.before is not None,
            "applied_before": self.before.as_json() if self.before else None,
            "written": written or 0,
            "refused": self.refusal,
        }
