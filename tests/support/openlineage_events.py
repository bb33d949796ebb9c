"""What Airflow has written to OpenLineage by its file transport."""

import json
from pathlib import Path


def datasets_of(events: Path, task: str) -> dict[str, dict[str, str | None]]:
    """Return {direction: {namespace and name: version}} of a task's ends."""
    found: dict[str, dict[str, str | None]] = {"inputs": {}, "outputs": {}}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["eventType"] == "COMPLETE" and event["job"]["name"] == task:
            for direction, datasets in found.items():
                datasets |= {
                    f"{one['namespace']} {one['name']}": one["facets"]
                    .get("version", {})
                    .get("datasetVersion")
                    for one in event[direction]
                }
    return found
