"""What a task has read and written, by the result of its job: for asset events and OpenLineage."""

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from airflow.sdk import Context

from shardpost.settings import Settings
from shardpost.spark.job import FOLLOWING

log = logging.getLogger(__name__)

_COMPACTED = {"published": ("kafka/share-holders",), "letters": ("kafka/dead-letters",)}
_SWEPT = ("kafka/dead-letters", "tables/dead_letters")
# {job: {what its result has if it has written: to which topics and tables}}
_WRITES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "compact_positions": _COMPACTED | {"changed": ("tables/snapshots",)},
    "rebuild_tables": _COMPACTED | {"committed": ("tables/snapshots",)},
    "sweep_dead_letters": dict.fromkeys(("dropped", "taken_in"), _SWEPT)
    | {"retried": ("kafka/retries", *_SWEPT), "parked": ("kafka/parking-lot", *_SWEPT)},
    "weekly_email": {
        "is_new": ("tables/audiences", "tables/frozen_weeks"),
        "answers": ("kafka/weekly-emails",),
    },
    "import_positions": {"written": ("kafka/{into}", "kafka/decisions")},
}
_EXTRA = (
    *("snapshot", "end_offsets", "positions", "holders", "rejected", "published", "letters"),
    *("retried", "parked", "dropped", "taken_in", "week", "as_of", "recipients"),
)


class Lineage(NamedTuple):
    """{`kafka/TOPIC`, `tables/FOLDER`, or a file: offsets, version, snapshot, week, or None}.

    Topics that were read have their names in Kafka, written ones those of the contract.
    """

    reads: dict[str, Any]
    writes: dict[str, Any]
    extra: dict[str, Any]


def extra_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event has of a result, or of a snapshot."""
    return {name: facts[name] for name in _EXTRA if name in facts}


def _lineage(job: str, result: Mapping[str, Any], *, again: bool) -> Lineage:
    """Return it; with `again`, as if all was written that its result could name."""
    view = result.get("view") or result.get("snapshot")
    facts = {**result, **view} if isinstance(view, dict) else result
    week, number = facts.get("week"), facts.get("snapshot")
    version = week or facts.get("import_id") or number
    keys = [key for key in _WRITES[job] if (key in result if again else result.get(key))]
    named = (name for key in keys for name in _WRITES[job][key])
    writes = {name.format(into=facts.get("into")): version for name in named}
    reads = {f"kafka/{topic}": ends for topic, ends in facts.get("end_offsets", {}).items()}
    reads = reads or ({"tables/snapshots": number} if number else {})
    reads |= {"tables/audiences": week} if "answers" in result else {}
    reads |= {result["source"]: None} if str(result.get("source")).startswith("/") else {}
    if "changed" in keys:
        folders = facts.get("folders", {})
        writes |= {f"tables/{folders.get(name, name)}": at for name, at in facts["tables"].items()}
    if job == "rebuild_tables":
        made = {f"tables/{folder}": number for folder in result["tables"].values()}
        reads, writes = (made, writes) if {"view", "refused"} & {*result} else (reads, made)
    return Lineage(reads, writes, extra_of(facts))


def note_result(
    context: Context, outlets: list[Any], job: str, result: Mapping[str, Any]
) -> Lineage | None:
    """Return what the task has read and written; give it the outlets that changed, with an extra.

    With those of an earlier attempt, or another turn. It never fails: the work is done.
    """
    task = context["task"]
    task.outlets = outlets
    try:
        again = context["ti"].try_number > 1 or bool(result.get(FOLLOWING, {}).get("turns"))
        lineage = _lineage(job, result, again=again)
        written = [one.replace("-", "_").partition("/") for one in lineage.writes]
        task.outlets = [
            asset  # whose name may have a prefix
            for asset in outlets
            for kind, _, name in written
            if asset.name.endswith(name) and asset.uri.startswith("kafka:") == (kind == "kafka")
        ]
        for asset in task.outlets:
            context["outlet_events"][asset].extra = lineage.extra
    except Exception:
        log.warning("no lineage of this result", exc_info=True)
        return None
    return lineage


def as_openlineage(lineage: Lineage, settings: Settings) -> Any:
    """Return it as the provider of OpenLineage asks for it, which may not be installed."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset

    root, kafka = urlsplit(settings.tables_root), settings.bootstrap.partition(",")[0].strip()
    tables = f"{root.scheme}://{root.netloc}" if settings.is_on_store else "file"

    def named(made: Any, place: str, version: Any, topics: Mapping[Any, str]) -> Any:
        kind, _, name = place.partition("/")
        namespace, name = {
            "kafka": (f"kafka://{kafka}", topics.get(name, name)),
            "tables": (tables, f"{root.path}/{name}".lstrip("/" if root.netloc else "")),
        }.get(kind, ("file", place))
        text = json.dumps(version).strip('"')  # a week is a text, offsets are an object
        facet = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=text)
        return made(namespace, name, facets={"version": facet} if version is not None else {})

    return OperatorLineage(
        inputs=[named(InputDataset, *one, {}) for one in lineage.reads.items()],
        outputs=[named(OutputDataset, *one, settings.topics) for one in lineage.writes.items()],
    )
