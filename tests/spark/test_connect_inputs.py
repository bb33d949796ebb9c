"""What Kafka Connect and Debezium write, by their own classes: an entry is made, and it holds."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.holders.model.view_tables import POSITIONS
from shardpost.settings import Settings
from tests.support.command_line import CommandLine
from tests.support.compacting import held, run
from tests.support.connect import Connect, connect_classes
from tests.support.installed import installed
from tests.support.reference import Raw, produce, published

AS_KEY = {"converter.type": "key"}
LARGE = 1 << 40
SOURCE = {"version": "3.4.3.Final", "connector": "postgresql", "snapshot": "false"}
# The columns `numeric(20,4)` and `bigint` come as a decimal of Connect's, and as an int64.
ROW = {"id": "INT64", "client_id": "STRING", "symbol": "OPTIONAL_STRING", "mic": "STRING"}


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    with connect_classes() as found:
        yield found


def suggested(settings: Settings, tmp_path: Path) -> Settings:
    """Return settings with the entry that the newest records suggest."""
    printed = CommandLine(settings.environ())("inputs", "suggest", "positions")
    (file := tmp_path / "inputs.yaml").write_text(printed)
    return settings.model_copy(update={"inputs": file})


def amounts(settings: Settings) -> dict[str, str]:
    at = at_snapshot(snapshots.current(installed(settings).tables), POSITIONS)
    found = rows(installed(settings).tables, "SELECT key, amount FROM positions WHERE is_open", at)
    return {row["key"]: row["amount"] for row in found}


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_a_topic_of_debezium_in_json_has_its_holders(
    fresh: Callable[[], Settings], connect: Connect, tmp_path: Path, schemas: str
) -> None:
    settings = fresh()
    config = {"schemas.enable": schemas, "decimal.format": "NUMERIC"}
    of_key = connect.schema("Key", id="INT64")
    of_row = connect.schema("Value", **ROW, qty=connect.decimal(4))

    def written(op: str, number: int, client: str, qty: str, mic: str = "NASDAQ") -> Raw:
        row = {"id": LARGE + number, "client_id": client, "mic": mic, "qty": Decimal(qty)}
        event = connect.event(op, connect.struct(of_row, row | {"symbol": "AAPL"}), SOURCE)
        return Raw("positions", key_of(number), connect.written(*event, config))

    def key_of(number: int) -> Any:
        key = connect.struct(of_key, {"id": LARGE + number})
        return connect.written(of_key, key, config | AS_KEY)

    produce(
        settings,
        [
            written("read", 1, "client1", "2.5000"),
            written("create", 2, "client1", "12345678901234567.1234"),
            written("create", 3, "client2", "1.0000", "LSE"),
            written("create", 4, "client2", "7.0000"),
        ],
    )
    own = suggested(settings, tmp_path)
    run(own)
    ids = [str(LARGE + number) for number in range(5)]
    assert held(own) == published(own) == {"client1": ids[1:3], "client2": [ids[4]]}
    assert {Decimal(amount) for amount in amounts(own).values()} == {
        *map(Decimal, ("2.5", "12345678901234567.1234", "1", "7"))
    }
    deleted = [written("delete", 1, "client1", "2.5000"), Raw("positions", key_of(1), None)]
    produce(settings, [*deleted, written("update", 4, "client3", "8.0000")])
    run(own)
    assert held(own) == published(own) == {"client1": [ids[2]], "client3": [ids[4]]}


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_a_topic_of_any_connector_in_json_has_its_holders(
    fresh: Callable[[], Settings], connect: Connect, tmp_path: Path, schemas: str
) -> None:
    settings, config = fresh(), {"schemas.enable": schemas}
    of_row = connect.schema("Value", **ROW, qty="INT64")
    of_key = connect.jvm.org.apache.kafka.connect.data.Schema.STRING_SCHEMA

    def written(number: int, client: str | None, schema: Any = of_row) -> Raw:
        row = {"id": LARGE, "client_id": client, "symbol": "T", "mic": "NYSE", "qty": LARGE}
        key = connect.written(of_key, str(number), config | AS_KEY)
        made = connect.struct(of_row, row) if client else None
        return Raw("positions", key, connect.written(schema, made, config))

    produce(settings, [written(1, "client1"), written(2, "client2"), written(2, "client1")])
    own = suggested(settings, tmp_path)
    run(own)
    assert held(own) == published(own) == {"client1": ["1", "2"]}
    produce(settings, [written(1, None, schema=None)])
    run(own)
    assert held(own) == published(own) == {"client1": ["2"]}
    assert amounts(own) == {"2": str(LARGE)}
    null = written(2, None)  # of a schema: no tombstone, but text
    assert (null.value == b"null") == (schemas == "false")
    produce(settings, [null])
    run(own)
    rejected = snapshots.current(installed(own).tables).counts.rejected
    assert (rejected, bool(held(own))) == ((1, True) if schemas == "false" else (0, False))
