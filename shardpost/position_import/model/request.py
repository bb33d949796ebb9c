"""What an import is asked to do."""

from dataclasses import dataclass
from datetime import datetime

from shardpost.position_import.model.source import Source


@dataclass(frozen=True)
class ImportRequest:
    """A list, and whether its difference is written; by default it is only planned.

    Without `import_id` it has that of its content; `max_closed` is a share, by default that of the
    settings; `why` is what is recorded, by default the source and the counts.
    """

    source: Source
    now: datetime
    who: str
    is_applied: bool = False
    import_id: str | None = None
    max_closed: float | None = None
    why: str | None = None
