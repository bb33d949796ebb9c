"""Metrics as Prometheus reads them."""

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families


def metric_families(text: str) -> dict[str, Any]:
    """Return {name: metric} of OpenMetrics text; ValueError if it is none."""
    found = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {one.name: one for one in found}
