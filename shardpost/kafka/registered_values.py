"""Keys and values that name a schema of a registry, read for a person; Spark reads those of runs.

In Confluent's wire format, a byte 0 and the schema's id stand before the bytes, or a byte 1 and its
GUID; or those stand in the header `__key_schema_id` or `__value_schema_id`. The indexes of a type
of Protobuf follow there.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple
from uuid import UUID

# The decoder in C would overflow its stack on a record that is in itself very often.
from fastavro._read_py import BinaryDecoder, read_data
from fastavro.schema import parse_schema

from shardpost.errors import single_line
from shardpost.kafka.protobuf_messages import MAX_SHOWN, compiled, messages
from shardpost.kafka.records import Record, header_bytes
from shardpost.kafka.schema_registry import Schema, SchemaRegistry

_NAMED = re.compile(rb"\x00.{4}|\x01.{16}", re.DOTALL)


class Registered(NamedTuple):
    """Where a registry has the schema, such as `ids/7`; and the bytes that are of it."""

    place: str
    payload: bytes

    def read(self, registry: SchemaRegistry) -> tuple[str, Any]:
        """Return the kind of the schema, and the value; ValueError if it is none.

        ShardpostError if the registry does not answer.
        """
        schema = registry.schema(self.place)
        if schema is None or schema.kind not in _READERS:
            found = schema.kind if schema else "none in the registry"
            known = "Avro, JSON or Protobuf"
            raise ValueError(f"schema {self.place}: expected one of {known}, found {found}")
        try:
            return schema.kind, _READERS[schema.kind](schema, self.payload)
        except Exception as error:  # of any bytes, and any schema
            raise ValueError(no_value(self.place, error)) from None


def no_value(place: str, error: Exception) -> str:
    """Return why bytes are no value of the schema at a place."""
    found = single_line(f"{type(error).__name__}: {error}", MAX_SHOWN)
    return f"schema {place}: expected a value of it, found {found}"


def registered(record: Record, part: Literal["key", "value"]) -> Registered | None:
    """Return a record's key or value, if it names a schema."""
    data: bytes | None = getattr(record, part)
    own = [header_bytes(text) for name, text in record.headers if name == f"__{part}_schema_id"]
    header = own[-1] if own else None
    whole = (header or b"") + (data or b"")
    found = _NAMED.match(whole if header is None else header)
    if found is None or data is None:
        return None
    return Registered(place_of(found[0]), whole[found.end() :])


def place_of(schema: bytes) -> str:
    """Return where a registry has what such bytes name."""
    return f"guids/{UUID(bytes=schema[1:])}" if schema[0] else f"ids/{int.from_bytes(schema[1:])}"


class _Decoder(BinaryDecoder):  # type: ignore[misc]
    """Reads bytes of others: arrays of nothing could have any length."""

    left = 0

    def iter_array(self) -> Iterator[None]:
        for _ in super().iter_array():
            self.left -= 1
            if self.left < 0:
                raise ValueError("more items than bytes")
            yield


def _avro(schema: Schema, payload: bytes) -> Any:
    known: dict[str, Any] = {}
    parsed = [parse_schema(json.loads(text), named_schemas=known) for text in schema.texts][-1]
    decoder = _Decoder(stream := io.BytesIO(payload))
    decoder.left = len(payload)
    value = read_data(decoder, parsed, {"writer": known, "reader": {}}, None, {})
    if left := stream.read():
        raise ValueError(f"{len(left)} more bytes behind it")
    return value


_READERS: dict[str, Callable[[Schema, bytes], Any]] = {
    "AVRO": _avro,
    "JSON": lambda _, payload: json.loads(payload),
    "PROTOBUF": lambda schema, payload: json.loads(messages(compiled(schema)).text(payload)),
}
