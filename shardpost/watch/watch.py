"""Measure everything once: store it and send alerts, or print it as OpenMetrics text.

All sources are read in parallel, and none can stop the others.
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
from shardpost.alerts.model.alert import Firing, advance
from shardpost.alerts.model.metrics import METRICS, PREFIX, Measure
from shardpost.alerts.notifier import Notified, notify
from shardpost.delta.query import table_errors
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.locks.locks import exclusive
from shardpost.logs import step
from shardpost.watch import sources
from shardpost.watch.model.conditions import NOT_MEASURED, Observations, disk_full

Collect = Callable[[Installation, datetime], Observations]
Sources = Mapping[str, Collect]  # by name
SOURCES: Sources = {
    "kafka": sources.collect_kafka,
    sources.LAG: sources.collect_lag,
    "snapshot": sources.collect_snapshot,
    "share-holders": sources.collect_share_holders,
    "letters": sources.collect_letters,
    "emails": sources.collect_emails,
    "runs": sources.collect_runs,
    "sizes": sources.collect_sizes,
}

log = logging.getLogger(__name__)


def collect_all(
    installation: Installation, now: datetime, sources: Sources = SOURCES
) -> Observations:
    """Return all observations; a source that fails is a condition of its own."""
    found = Observations()
    with ThreadPoolExecutor(len(sources)) as pool:
        for one in pool.map(lambda name: _collect(name, sources[name], installation, now), sources):
            found.add(one)
    return found


def _collect(
    name: str, collect: Collect, installation: Installation, now: datetime
) -> Observations:
    try:
        found = collect(installation, now)
    except (ShardpostError, OSError) as error:
        text = str(error)
    except Exception as error:
        log.exception("%s cannot be measured", name)
        text = f"{type(error).__name__}: {error}"
    else:
        found.measure("source_up", 1, source=name)
        found.conditions = [replace(one, source=name) for one in found.conditions]
        return found
    failed = Observations(unmeasured={name})
    failed.measure("source_up", 0, source=name)
    failed.conditions.append(NOT_MEASURED.broken(name, text))
    return failed


def open_metrics(measures: Iterable[Measure]) -> str:
    """Return values as OpenMetrics text, in the order of their declarations."""
    by_name: dict[str, list[Measure]] = defaultdict(list)
    for one in measures:
        by_name[one.name].append(one)
    families = []
    for name, metric in METRICS.items():
        if name in by_name:
            family = GaugeMetricFamily(
                PREFIX + name, metric.meaning, labels=metric.labels, unit=metric.unit
            )
            for one in by_name[name]:
                family.add_metric([one.labels[label] for label in metric.labels], one.value)
            families.append(family)
    text: bytes = generate_latest(SimpleNamespace(collect=lambda: families))  # type: ignore[no-untyped-call]
    return text.decode()


LOCK = "watch"
RATE_OVER = timedelta(days=7)


@dataclass(frozen=True)
class Watched:
    """The results of one watch, and the alerts that were sent."""

    observations: Observations
    notified: Notified


def watch_once(installation: Installation, now: datetime, sources: Sources = SOURCES) -> Watched:
    """Measure once, add to the history, and notify people of changes.

    LockedError beside another watch; ShardpostError if the tables of the watch cannot be written.
    """
    with exclusive(installation.files, LOCK, "the watch"), table_errors():
        found = collect_all(installation, now, sources)
        free = [one.value for one in found.measures if one.name == "disk_free_bytes"]
        if free:
            since = now - RATE_OVER
            before = history.values_over(installation.tables, "disk_free_bytes", since, now)
            if condition := disk_full(before, now, free[0]):
                found.conditions.append(replace(condition, source="sizes"))
        step("look")
        history.add_measures(installation.tables, found.measures, now)
        step("history")

        def after(known: list[Firing]) -> list[Firing]:
            return advance(known, found.conditions, now, found.unmeasured)

        notified = notify(installation, now, after)
    return Watched(found, notified)
