"""How a run that sends ends: its exit code, its JSON document, and what it says of it."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.printable import one_line
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.model.too_many import LimitSettings, too_many
from shardpost.weekly_email.model.week_status import ShardStatus, status_document


def document_of(week: PreparedWeek, shards: Iterable[ShardStatus]) -> dict[str, Any]:
    """Return the JSON document of a run that sends."""
    return status_document(week.iso_week, shards) | {"snapshot": week.snapshot_number}


def exit_code_of(
    settings: LimitSettings, document: Mapping[str, Any], errors: Mapping[int, str]
) -> int:
    """Return the exit code; `errors` says of each shard that stopped why.

    What stopped shards, or that too many clients got no mail, goes to standard error.
    """
    if errors:
        stopped = "; ".join(f"shard {shard}: {error}" for shard, error in errors.items())
        sys.stderr.write(f"shardpost: {one_line(stopped)}\n")
        return COULD_NOT
    reasons = too_many(settings, document["week"], [document])
    for reason in reasons:
        sys.stderr.write(f"shardpost: {one_line(reason)}\n")
    return NEEDS_ATTENTION if document["unknown"] or reasons else DONE
