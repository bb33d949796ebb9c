"""One look at everything: stored, and sent as alerts; or printed as OpenMetrics text.

All sources are looked at in parallel, and none can stop the others.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import SimpleNamespace

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest

from shardpost.alerts import history
from shardpost.alerts.model.firing import Firing, advance
from shardpost.alerts.model.metrics import METRICS, PREFIX, Measure
from shardpost.alerts.telling import Telling, tell
from shardpost.delta.object_store import Tables
from shardpost.delta.query import table_errors
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.locks.locks import exclusive
from shardpost.logs import step
from shardpost.watch import sources
from shardpost.watch.model import conditions
from shardpost.watch.model.conditions import Found, disk_full

Look = Callable[[Installation, datetime], Found]
Sources = Mapping[str, Look]  # by name
SOURCES: Sources = {
    "kafka": sources.look_at_kafka,
    sources.LAG: sources.look_at_lag,
    "snapshot": sources.look_at_snapshot,
    "share-holders": sources.look_at_share_holders,
    "letters": sources.look_at_letters,
    "emails": sources.look_at_emails,
    "runs": sources.look_at_runs,
    "sizes": sources.look_at_sizes,
}

log = logging.getLogger(__name__)


def look(installation: Installation, now: datetime, sources: Sources = SOURCES) -> Found:
    """Return all that is found; a source that fails is a condition of its own."""
    found = Found()
    with ThreadPoolExecutor(len(sources)) as pool:
        for one in pool.map(lambda name: _look_at(name, sources[name], installation, now), sources):
            found.add(one)
    return found


def _look_at(name: str, look_at: Look, installation: Installation, now: datetime) -> Found:
    try:
        found = look_at(installation, now)
    except (ShardpostError, OSError) as error:
        text = str(error)
    except Exception as error:
        log.exception("%s cannot be measured", name)
        text = f"{type(error).__name__}: {error}"
    else:
        found.measure("source_up", 1, source=name)
        found.conditions = [replace(one, source=name) for one in found.conditions]
        return found
    failed = Found(unmeasured={name})
    failed.measure("source_up", 0, source=name)
    failed.conditions.append(conditions.NOT_MEASURED.broken(name, text))
    return failed


def metrics_text(installation: Installation, now: datetime) -> str:
    """Measure everything once and return it as OpenMetrics; what cannot be measured is left out."""
    return open_metrics(look(installation, now).measures)


def open_metrics(measures: Iterable[Measure]) -> str:
    """Return values as OpenMetrics text, by the order of the declarations."""
    by_name: dict[str, list[Measure]] = defaultdict(list)
    for one in measures:
        by_name[one.name].append(one)
    families = [_family(name, by_name[name]) for name in METRICS if name in by_name]
    text: bytes = generate_latest(SimpleNamespace(collect=lambda: families))  # type: ignore[no-untyped-call]
    return text.decode()


def _family(name: str, measures: Iterable[Measure]) -> GaugeMetricFamily:
    """Return a metric and its values as the library wants them."""
    metric = METRICS[name]
    made = GaugeMetricFamily(PREFIX + name, metric.meaning, labels=metric.labels, unit=metric.unit)
    for one in measures:
        made.add_metric([one.labels[label] for label in metric.labels], one.value)
    return made


LOCK = "watch"
RATE_OVER = timedelta(days=7)


@dataclass(frozen=True)
class Watched:
    """What one watch found, and what was told."""

    found: Found
    telling: Telling


def watch_once(installation: Installation, now: datetime, sources: Sources = SOURCES) -> Watched:
    """Look once, add to the history, and tell people what changed.

    LockedError beside another watch; ShardpostError if the tables of the watch cannot be written.
    """
    with exclusive(installation.files, LOCK, "the watch"), table_errors():
        found = look(installation, now, sources)
        _add_growth(found, installation.tables, now)
        step("look")
        history.add_measures(installation.tables, found.measures, now)
        step("history")
        told = tell(installation, now, lambda known: _after(known, found, now))
    return Watched(found, told)


def _after(known: list[Firing], found: Found, now: datetime) -> list[Firing]:
    return advance(known, found.conditions, now, found.unmeasured)


def _add_growth(found: Found, tables: Tables, now: datetime) -> None:
    free = [one.value for one in found.measures if one.name == "disk_free_bytes"]
    if not free:
        return
    before = history.past_values(tables, "disk_free_bytes", now - RATE_OVER, now)
    if condition := disk_full(before, now, free[0]):
        found.conditions.append(replace(condition, source="sizes"))
