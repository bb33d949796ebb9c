"""Looks at everything once: all sources side by side, none able to stop the others."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.watch.model import rules
from shardpost.watch.model.found import Found, Source
from shardpost.watch.sources import emails, kafka, lag, letters, runs, sizes, snapshot

SOURCES: tuple[Source[Settings], ...] = (
    Source("kafka", kafka.look),
    Source(lag.NAME, lag.look),
    Source("snapshot", snapshot.look),
    Source("letters", letters.look),
    Source("emails", emails.look),
    Source("runs", runs.look),
    Source("sizes", sizes.look),
)

log = logging.getLogger(__name__)


def look(
    settings: Settings, now: datetime, sources: tuple[Source[Settings], ...] = SOURCES
) -> Found:
    """Return all that is found; a source that fails is a condition of its own."""
    found = Found()
    with ThreadPoolExecutor(len(sources)) as pool:
        for one in pool.map(lambda source: _look_at(source, settings, now), sources):
            found.add(one)
    return found


def _look_at(source: Source[Settings], settings: Settings, now: datetime) -> Found:
    try:
        found = source.look(settings, now)
    except (ShardpostError, OSError) as error:
        text = str(error)
    except Exception as error:
        log.exception("%s cannot be measured", source.name)
        text = f"{type(error).__name__}: {error}"
    else:
        found.measure("source_up", 1, source=source.name)
        found.conditions = [replace(one, source=source.name) for one in found.conditions]
        return found
    failed = Found(unmeasured={source.name})
    failed.measure("source_up", 0, source=source.name)
    failed.conditions.append(rules.NOT_MEASURED.broken(source.name, text))
    return failed
