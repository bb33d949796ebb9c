"""Values that name a schema of a registry, as JSON for a person."""

import json
from base64 import b64encode
from contextlib import suppress
from typing import Any, NamedTuple

from shardpost.dead_letters.model.letters import ORIGIN_TOPIC
from shardpost.errors import ShardpostError
from shardpost.holders.inputs import mappings_of, registry_of
from shardpost.installation import Installation
from shardpost.kafka.records import Record, utf8_text
from shardpost.kafka.registered_values import registered
from shardpost.kafka.schema_registry import SchemaRegistry


class Readable(NamedTuple):
    """A value, what it is if it names a schema, in words, and then its JSON, if that is known."""

    value: bytes | None
    kind: str | None = None
    json: bytes | None = None

    @property
    def shown(self) -> bytes | None:
        """The JSON, or else the value."""
        return self.value if self.json is None else self.json


class ReadableValues:
    """What values are by the schemas of the registries that SHARDPOST_INPUTS names.

    Of its inputs, their retries and letters; each schema is asked for once.
    """

    def __init__(self, installation: Installation) -> None:
        self._registries: dict[str, SchemaRegistry] = {}
        with suppress(ShardpostError):  # the file is wrong, as whoever reads inputs says
            for name, mapping in mappings_of(installation).items():
                if at := mapping.registry:
                    self._registries[installation.topic(name)] = registry_of(installation, name, at)

    def read(self, record: Record) -> Readable:
        """Return the value of a record."""
        origin = utf8_text(dict(record.headers).get(ORIGIN_TOPIC)) or record.topic
        registry, named = self._registries.get(origin), registered(record, "value")
        if registry is None or named is None:
            return Readable(record.value)
        try:
            kind, value = named.read(registry)
            text = json.dumps(value, ensure_ascii=False, default=_text).encode()
        except ShardpostError:
            self._registries.clear()  # it would be waited for again
            return Readable(record.value, f"bytes of schema {named.place}, whose registry is away")
        except (ValueError, RecursionError) as error:
            return Readable(record.value, f"bytes: {error}")
        return Readable(record.value, f"{kind} of schema {named.place}, as JSON", text)


def _text(value: Any) -> str:
    """Return what JSON has not: bytes in base64, as Spark writes them; numbers, times and ids."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
