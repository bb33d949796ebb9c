"""What is measured now, as OpenMetrics text."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from shardpost.measurements.model.metrics import METRICS, PREFIX, Measure
from shardpost.settings import Settings
from shardpost.watch.looking import look


def metrics_text(settings: Settings, now: datetime) -> str:
    """Measure everything once and return it as OpenMetrics; what cannot be measured is left out."""
    return open_metrics(look(settings, now).measures)


def open_metrics(measures: Iterable[Measure]) -> str:
    """Return values as OpenMetrics text, by the order of the declarations."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Measured(measures))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


class _Measured(Collector):
    """The values as the library wants them: by metric."""

    def __init__(self, measures: Iterable[Measure]) -> None:
        self._by_name: dict[str, list[Measure]] = defaultdict(list)
        for one in measures:
            self._by_name[one.name].append(one)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric that has a value."""
        for name, metric in METRICS.items():
            if name not in self._by_name:
                continue
            family = GaugeMetricFamily(
                PREFIX + name, metric.meaning, labels=metric.labels, unit=metric.unit
            )
            for one in self._by_name[name]:
                family.add_metric([one.labels[label] for label in metric.labels], one.value)
            yield family
