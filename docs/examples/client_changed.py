"""Each time that holders change, wait for the record of one client in the topic share-holders.

An example of a DAG of your own: copy it into a DAGs folder. It reads Kafka by a connection of its
own, `kafka_client_changed`, with the extra `bootstrap.servers`, `group.id`, `auto.offset.reset` =
`earliest`, `enable.auto.commit` = false and `isolation.level` = `read_committed`. The sensor waits
in the triggerer, without a slot, and reads one record after the other: a run has the oldest record
of the client that its group has not read, which may be of an earlier snapshot than the event.
"""

import json
from datetime import timedelta
from typing import Any

from airflow.providers.apache.kafka.sensors.kafka import AwaitMessageSensor
from airflow.sdk import Param, dag, task
from shardpost_assets import assets


@task
def say(record: str, triggering_asset_events: Any = None) -> dict[str, Any]:
    """Return the client's positions, and the snapshot of the last event."""
    events = [event for of_asset in triggering_asset_events.values() for event in of_asset]
    extra = events[-1].extra if events else {}  # none in a run by hand
    extra = extra.get("payload", extra)  # of an event while a run follows
    return {"snapshot": extra.get("snapshot"), "holds": json.loads(record)}


@dag(
    schedule=[
        assets().holders
    ],  # where Shardpost is not installed: Asset.ref(name="share_holders")
    params={"client": Param("client1", type="string", description="Whose record is awaited.")},
    max_active_runs=1,
    tags=["example"],
    doc_md=__doc__,
)
def client_changed() -> None:
    """Wait for a record; say what it has."""
    record: Any = AwaitMessageSensor(
        task_id="wait",
        kafka_config_id="kafka_client_changed",
        topics=["share-holders"],
        apply_function="shardpost_assets.value_of",
        apply_function_args=["{{ params.client }}"],
        poll_interval=0.1,
        timeout=timedelta(hours=1).total_seconds(),
    ).output
    say(record)


client_changed()
