"""The assets: what they are called, when they have an event and what it has; OpenLineage."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.asset import AssetActive, AssetEvent
from airflow.sdk import Asset
from airflow.utils.session import create_session
from shardpost_assets import FollowerWatch, assets, table_uri, topic_uri, value_of
from sqlalchemy import delete, select

from shardpost.checkout import CHECKOUT
from shardpost.holders import following
from shardpost.installation import Installation
from shardpost.orchestration.lineage import as_openlineage, note_result
from shardpost.settings import declared, load
from tests.dags.conftest import StandIn
from tests.support.histories import snapshot

VIEW: dict[str, Any] = {
    "snapshot": 7,
    "end_offsets": {"positions": {"0": 20, "1": 9}},
    "tables": {"share_holders": 3},
    "positions": 5,
    "holders": 2,
    "rejected": 0,
}
NOTHING_NEW = {"snapshot": VIEW, "changed": False, "published": 0, "letters": 0}
CHANGED = NOTHING_NEW | {"changed": True, "published": 2}
EXTRA = {name: VIEW[name] for name in VIEW if name != "tables"} | {"published": 2, "letters": 0}
SWEPT: dict[str, Any] = {"retried": 0, "parked": 0, "dropped": 0, "taken_in": 0, "waiting": 4}
SWEPT |= {"end_offsets": {"dead-letters": {"0": 3}}}
FROZEN = {"week": "2026-W47", "snapshot": 7, "as_of": "…", "recipients": 2, "skipped": None}
IMPORTED = {"snapshot": 7, "source": "/lists/today.csv", "import_id": "a1", "written": 3}
IMPORTED |= {"into": "positions"}
REBUILT = {"rebuild": 2, "pinned": 6, "snapshot": 7, "tables": {"positions": "positions.2"}}
SWAPPED = REBUILT | {"view": VIEW | {"snapshot": 8}, "committed": 8, "published": 1, "letters": 0}


@pytest.fixture
def known(bag: DagBag) -> None:
    """Let Airflow know our DAGs and their assets, which have no event yet."""
    with create_session() as session:
        session.execute(delete(AssetEvent))
        # Of one name one is active: perhaps another test's, which had its tables elsewhere.
        session.execute(delete(AssetActive))
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    sync_bag_to_db(bag, "dags-folder", None)


def events() -> dict[str, Any]:
    """Return {name of an asset: the extra of its only event}."""
    with create_session() as session:
        found = [(one.asset.name, one.extra) for one in session.scalars(select(AssetEvent))]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (CHANGED, {"share_holders": EXTRA, "shardpost_snapshots": EXTRA}),
        (NOTHING_NEW, {}),
        (CHANGED | {"published": 0}, {"shardpost_snapshots": EXTRA | {"published": 0}}),
        (
            NOTHING_NEW | {"letters": 1},
            {"shardpost_dead_letters": EXTRA | {"published": 0, "letters": 1}},
        ),
        (
            NOTHING_NEW | {"following": {"turns": 3}},
            dict.fromkeys(
                ("share_holders", "shardpost_snapshots", "shardpost_dead_letters"),
                EXTRA | {"published": 0},
            ),
        ),
    ],
)
def test_an_asset_has_an_event_where_it_changed_with_the_snapshot_as_extra(
    bag: DagBag, stand_in: StandIn, result: dict[str, Any], expected: dict[str, Any]
) -> None:
    stand_in({"": [0, result]})
    run = bag.dags["compact_positions"].test()
    assert run.state == "success"
    assert events() == expected


@pytest.mark.usefixtures("known")
def test_the_same_holds_for_letters_and_retries(bag: DagBag, stand_in: StandIn) -> None:
    result = SWEPT | {"held": 0, "parked_errors": [], "gaps": []}
    result |= {"not_read": [], "swept_again": []}
    stand_in({"": [0, result]})
    bag.dags["sweep_dead_letters"].test()
    assert events() == {}
    stand_in({"": [0, result | {"retried": 2}]})
    bag.dags["sweep_dead_letters"].test()
    assert events().keys() == {"shardpost_retries", "shardpost_dead_letters"}
    assert events()["shardpost_retries"]["retried"] == 2


class Task:
    """What a result is noted for: a task that has outlets, in an attempt."""

    def __init__(self, *outlets: Asset, attempt: int = 1) -> None:
        self.outlets = [*outlets]
        self.try_number = attempt
        self.extras: dict[str, Any] = {}

    def __getitem__(self, asset: Asset) -> Any:
        self.extras[asset.name] = self
        return self

    def note(self, job: str, result: dict[str, Any]) -> Any:
        context: Any = {"task": self, "ti": self, "outlet_events": self}
        return note_result(context, self.outlets, job, result)


def test_a_second_attempt_has_events_for_what_the_first_may_have_changed() -> None:
    first, second = Task(assets().holders), Task(assets().holders, attempt=2)
    first.note("compact_positions", NOTHING_NEW)
    second.note("compact_positions", NOTHING_NEW)
    assert (len(first.outlets), len(second.outlets)) == (0, 1)


def test_a_result_that_nobody_understands_fails_no_task() -> None:
    task = Task(assets().holders)
    assert task.note("compact_positions", {"following": "?"}) is None
    assert task.outlets == [assets().holders]


def test_an_audience_has_an_event_when_it_is_frozen() -> None:
    for result, count in ((FROZEN, 0), (FROZEN | {"is_new": True}, 1)):
        task = Task(assets().audiences)
        task.note("weekly_email", result)
        assert len(task.outlets) == count


KAFKA, TABLES = "kafka://h1:9092/", "file//data/"
LINEAGE: dict[str, Any] = {
    "compaction": (
        *("compact_positions", CHANGED),
        {f"{KAFKA}positions": '{"0": 20, "1": 9}'},
        {f"{KAFKA}holders": "7", f"{TABLES}snapshots": "7", f"{TABLES}share_holders": "3"},
    ),
    "compaction with nothing new": (
        *("compact_positions", NOTHING_NEW),
        *({f"{KAFKA}positions": '{"0": 20, "1": 9}'}, {}),
    ),
    "sweep": (
        *("sweep_dead_letters", SWEPT | {"retried": 1}),
        {f"{KAFKA}dead-letters": '{"0": 3}'},
        dict.fromkeys((f"{KAFKA}retries", f"{KAFKA}dead-letters", f"{TABLES}dead_letters")),
    ),
    "freeze": (
        *("weekly_email", FROZEN | {"is_new": True}),
        {f"{TABLES}snapshots": "7"},
        dict.fromkeys((f"{TABLES}audiences", f"{TABLES}frozen_weeks"), "2026-W47"),
    ),
    "send": (
        *("weekly_email", {"week": "2026-W47", "snapshot": 7, "answers": [{}]}),
        {f"{TABLES}audiences": "2026-W47", f"{TABLES}snapshots": "7"},
        {f"{KAFKA}weekly-emails": "2026-W47"},
    ),
    "dry run": (
        *("weekly_email", {"week": "2026-W47", "snapshot": 7}),
        *({f"{TABLES}snapshots": "7"}, {}),
    ),
    "import": (
        *("import_positions", IMPORTED | {"changed": 2}),
        {"file//lists/today.csv": None, f"{TABLES}snapshots": "7"},
        dict.fromkeys((f"{KAFKA}positions", f"{KAFKA}decisions"), "a1"),
    ),
    "import of clients": (
        *("import_positions", IMPORTED | {"into": "clients"}),
        {"file//lists/today.csv": None, f"{TABLES}snapshots": "7"},
        dict.fromkeys((f"{KAFKA}clients", f"{KAFKA}decisions"), "a1"),
    ),
    "build": (
        *("rebuild_tables", REBUILT),
        {f"{TABLES}snapshots": "7"},
        {f"{TABLES}positions.2": "7"},
    ),
    "swap": (
        *("rebuild_tables", SWAPPED),
        {f"{TABLES}positions.2": "8"},
        {f"{KAFKA}holders": "8", f"{TABLES}snapshots": "8"},
    ),
    "refused swap": (
        *("rebuild_tables", REBUILT | {"refused": "too much"}),
        *({f"{TABLES}positions.2": "7"}, {}),
    ),
}


@pytest.mark.parametrize("name", LINEAGE)
def test_openlineage_has_the_datasets_of_each_job_and_their_versions(name: str) -> None:
    job, result, inputs, outputs = LINEAGE[name]
    settings = load(
        {
            "SHARDPOST_BOOTSTRAP_SERVERS": "h1:9092,h2:9092",
            "SHARDPOST_TABLES": "/data",
            "SHARDPOST_TOPIC_SHARE_HOLDERS": "holders",
        }
    )
    found = as_openlineage(Task().note(job, result), settings)
    assert (versions(found.inputs), versions(found.outputs)) == (inputs, outputs)


def versions(datasets: list[Any]) -> dict[str, str | None]:
    """Return {namespace and name: version}."""
    return {
        f"{one.namespace}/{one.name}": one.facets["version"].datasetVersion if one.facets else None
        for one in datasets
    }


def test_a_table_on_an_object_store_is_named_by_bucket_and_key() -> None:
    lineage = Task().note("weekly_email", FROZEN)
    for root, name in (("s3://bucket/a/b", "a/b/snapshots"), ("s3://bucket", "snapshots")):
        store = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "c"}
        [one] = as_openlineage(lineage, load({"SHARDPOST_TABLES": root, **store})).inputs
        assert (one.namespace, one.name) == ("s3://bucket", name)


@pytest.mark.parametrize(
    ("given", "topic", "table"),
    [
        ({}, "kafka://kafka_default/retries", None),
        ({"CONNECTIONS": "kafka=ours"}, "kafka://ours/retries", None),
        ({"BOOTSTRAP_SERVERS": ""}, "kafka://127.0.0.1:9092/retries", None),
        ({"BOOTSTRAP_SERVERS": "a:1,b:2", "TOPIC_RETRIES": "r"}, "kafka://a:1/r", None),
        ({"BOOTSTRAP_SERVERS": "nonsense"}, "kafka://127.0.0.1:9092/retries", None),
        ({"TABLES": "s3://bucket/tables"}, None, "s3://bucket/tables/audiences"),
        ({"TABLES": "/a b"}, None, "file:///a%20b/audiences"),
        ({"HOME": "/data"}, None, "file:///data/tables/audiences"),
    ],
)
def test_a_uri_says_where_by_the_settings_alone(
    given: dict[str, str],
    topic: str | None,
    table: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("BOOTSTRAP_SERVERS", "TOPIC_RETRIES", "TABLES", "HOME", "KAFKA_PORT"):
        monkeypatch.delenv(f"SHARDPOST_{name}", raising=False)
    for name, text in given.items():
        monkeypatch.setenv(f"SHARDPOST_{name}", text)
    assert assets().retries.uri == topic_uri(declared(), "retries")
    assert topic in (None, topic_uri(declared(), "retries"))
    assert table in (None, table_uri(declared(), "audiences"))


def test_while_a_run_follows_each_publication_is_an_event(
    task_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Installation(load({"SHARDPOST_HOME": str(task_environment)})).files
    names = FollowerWatch.run.__globals__  # Airflow imports the module once more
    monkeypatch.setitem(names, "LOOK_SECONDS", 0.01)
    monkeypatch.setitem(names, "EVENT_SECONDS", 0.01)
    current = snapshot(7, {})
    monkeypatch.setattr("shardpost.delta.snapshots.current", lambda _: current)
    own = following.begun(files, datetime.now(UTC))

    async def watch() -> list[int]:
        seen, found = [], FollowerWatch().run()
        for before, after in pairwise([None, 7, 7, 9]):
            following.note(files, replace(own, published_in=after, turns=after or 0))
            if before != after:
                seen.append(await one(found))
        return seen

    async def one(found: AsyncIterator[Any]) -> int:
        event = await asyncio.wait_for(anext(found), 20)
        number: int = event.payload["snapshot"]
        return number

    try:
        assert asyncio.run(watch()) == [7, 7]
    finally:
        following.forget(files, own)


class Message:
    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self.key, self.value = lambda: key, lambda: value


def test_a_sensor_waits_for_the_record_of_one_client() -> None:
    assert value_of("client1", Message(b"client1", b"{}")) == "{}"
    assert value_of("client1", Message(b"client1", None)) == "null"
    assert value_of("client1", Message(b"client2", b"{}")) is None
    assert value_of("client1", Message(None, b"{}")) is None


def test_the_example_is_scheduled_by_the_same_asset_as_ours() -> None:
    found = DagBag(dag_folder=CHECKOUT / "docs" / "examples")
    assert found.import_errors == {}
    condition: Any = found.dags["client_changed"].timetable.asset_condition
    [asset] = condition.objects
    assert (asset.name, asset.uri) == ("share_holders", assets().holders.uri)
