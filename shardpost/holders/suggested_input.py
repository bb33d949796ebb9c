"""An entry of SHARDPOST_INPUTS for an input, made from records of it.

Format, envelope and the form of keys are those that the records have. A field of ours is at the
path that ends in a name for it; if none does, the entry says so in a comment.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import yaml

from shardpost.errors import ShardpostError, UsageError, single_line
from shardpost.holders.inputs import registries, registry_of
from shardpost.holders.model.fields import MAX_QUOTED, FieldType
from shardpost.holders.model.input_mapping import (
    FIELDS,
    LANGUAGE,
    InputMapping,
    Names,
    Part,
    Registry,
    names_of,
    path_of,
)
from shardpost.installation import Installation
from shardpost.kafka.record_pages import newest_records
from shardpost.kafka.records import Record, utf8_text
from shardpost.kafka.registered_values import registered
from shardpost.kafka.schema_registry import SchemaRegistry
from shardpost.values.topic_names import TopicName
from shardpost.wording import some_of

SAMPLE, DEEPEST, MOST_NAMED = 200, 20, 20
FORMATS = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}
# The one format of the keys or the values of records, "" without any; and what these are.
Read = tuple[str, Sequence[Any]]
NAMES = Path(__file__).with_name("field_names.yml")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_A-Za-z]+")
_IDENTIFIER = re.compile(r"(?!(?i:true|false|null)\Z)[A-Za-z_][A-Za-z0-9_]*")
# What is cast to a type, if all of it is such text; and what needs no cast.
_CASTS = {
    FieldType.TEXT: ("string", re.compile("(?s).*"), (str, UUID)),
    FieldType.NUMBER: ("decimal(38,9)", re.compile(r"[-+]?\d+(\.\d+)?"), (int, float, Decimal)),
    FieldType.FLAG: ("boolean", re.compile("(?i)t|true|y|yes|1|f|false|n|no|0"), (bool,)),
}


class Suggestion(NamedTuple):
    """An entry, and what is to be said of its fields; `lacks` tells whether it needs others."""

    name: TopicName
    mapping: InputMapping
    notes: dict[str, str]
    lacks: bool

    @property
    def entry(self) -> dict[str, Any]:
        """What the file has of it."""
        return {self.name: self.mapping.model_dump(exclude_defaults=True)}

    def lines(self) -> Iterator[str]:
        """Yield the lines of a file."""
        text = yaml.safe_dump(self.entry, sort_keys=False, allow_unicode=True, width=1 << 20)
        yield from text.splitlines()
        yield from (f"    # {name}: {note}" for name, note in self.notes.items())


def suggested(installation: Installation, name: TopicName, url: str | None) -> Suggestion:
    """Return an entry for the newest records of an input.

    Schemas are in the registry at that URL, else in one that SHARDPOST_INPUTS names. ShardpostError
    if no record has a value, or they have several formats; UsageError if a registry is needed.
    """
    topic = installation.kafka.topic(name)
    records = newest_records(installation.kafka, topic, SAMPLE)
    whole = [one for one in records if one.value is not None]
    if not whole:
        found = "only tombstones" if records else "none"
        raise ShardpostError(f"topic {topic}: expected records with values, found {found}")
    registry = next(iter(registries(installation, url)), None)
    asked = registry_of(installation, name, registry) if registry else None
    value, key = _read(whole, "value", asked), _read(whole, "key", asked)
    return suggestion(name, key, value, registry)


def _read(records: Iterable[Record], part: Part, registry: SchemaRegistry | None) -> Read:
    """Read keys or values, as far as possible; ShardpostError if no value can be read."""
    read, why = defaultdict[str, dict[str, Any]](dict), ""
    for record in records:
        try:
            format_, found = _decoded(record, part, registry)
            read[format_][str(record.coordinates)] = found
        except ValueError as error:
            why = why or f"{record.coordinates}: {error}"
    if len(read) > 1:
        found = " and ".join(f"{one} at {next(iter(its))}" for one, its in read.items())
        raise ShardpostError(f"expected {part}s of one format, found {found}: write all in one")
    if not read and part == "value":
        raise ShardpostError(why)
    return next(((one, [*its.values()]) for one, its in read.items()), ("", ()))


def _decoded(record: Record, part: Part, registry: SchemaRegistry | None) -> tuple[str, Any]:
    """Return the format of a key or value, and what it is; ValueError if that is not known."""
    if one := registered(record, part):
        if registry is None:
            where = f"{record.coordinates}: schema {one.place} of the {part}"
            raise UsageError(f"{where}: expected a registry, found none: add --registry URL")
        kind, value = one.read(registry)
        return FORMATS[kind], value
    text, is_key = utf8_text(getattr(record, part)), part == "key"
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, (dict, str) if is_key else dict):
        return "json", found
    if is_key and text is not None:
        return "text", text
    quoted = single_line(repr(getattr(record, part)), MAX_QUOTED)
    raise ValueError(f"expected one JSON object, found {quoted}")


def suggestion(name: TopicName, key: Read, value: Read, registry: Registry | None) -> Suggestion:
    """Return an entry for records with such keys and values."""
    (format_, values), (key_format, keys) = value, key
    envelope, rows = _unwrapped(format_, values)
    given: dict[str, Any] = {"format": format_, "envelope": envelope}
    given |= {"registry": registry} if {key_format, format_} & {*FORMATS.values()} else {}
    if key_format not in ("", InputMapping(**given).format_of("key")):
        given["key_format"] = key_format
        given |= {"key": "key.payload"} if envelope == "none" and all(map(_wraps, keys)) else {}
    paths = defaultdict[Names, list[Any]](list)
    for path, found in (leaf for row in rows for leaf in _leaves(row)):
        # Names that begin another path than one of the row.
        root = ("after",) if envelope == "debezium" else ("value",) * (path[0] in ("key", "value"))
        paths[*root, *path].append(found)
    types, names = {one.name: one.type for one in FIELDS[name]}, yaml.safe_load(NAMES.read_text())
    made = {
        one: _source(names[one].split(), types.get(one, FieldType.TEXT), paths)
        for one in names_of(name)
    }
    fields = {one: source for one, source in made.items() if source}
    if not path_of(fields.get(LANGUAGE, LANGUAGE)):
        del fields[LANGUAGE]
    notes = {one: "not found: add its path, or an expression" for one in made if one not in fields}
    notes |= {} if key_format else {"key": "none found: records without one are rejected"}
    if notes:
        texts = (single_line(_text(path), MAX_QUOTED) for path in paths)
        notes["names"] = some_of([*texts], MOST_NAMED)
    lacks = not key_format or any(one.required and one.name in notes for one in FIELDS[name])
    if any(one != path for one, path in fields.items()):
        given["fields"] = fields
    return Suggestion(name, InputMapping(**given), notes, lacks or not fields)


def _unwrapped(format_: str, rows: Sequence[Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the envelope of values, and their rows."""
    envelope = "none"
    if format_ == "json" and all(map(_wraps, rows)):
        envelope, rows = "connect", [one["payload"] for one in rows]
    objects = [one for one in rows if isinstance(one, dict)]
    if not any("op" in one and one.keys() & {"before", "after"} for one in objects):
        return envelope, objects
    rows = [one.get("after") or one.get("before") for one in objects]
    return "debezium", [one for one in rows if isinstance(one, dict)]


def _wraps(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"schema", "payload"}


def _leaves(value: Any, path: Names = ()) -> Iterator[tuple[Names, Any]]:
    """Yield what is in a row, with its path."""
    if not isinstance(value, dict) or len(path) > DEEPEST:
        yield path, value
        return
    for name, inner in value.items():
        if name and name.isprintable():
            yield from _leaves(inner, (*path, name))


def _source(names: list[str], type_: FieldType, paths: dict[Names, list[Any]]) -> str | None:
    """Return the likest path of a field with these names, cast to its type if need be."""
    cast, castable, types = _CASTS[type_]
    likenesses = {path: _likeness(names, path) for path in paths}
    for path in sorted(filter(likenesses.get, paths), key=lambda one: likenesses[one] or ()):
        values = [one for one in paths[path] if one is not None]
        if all(type(one) in types for one in values):
            return _text(path)
        if all(isinstance(one, str | int | float | Decimal | UUID) for one in values) and all(
            castable.fullmatch(str(one)) for one in values
        ):
            return f"cast({_text(path)} AS {cast})"
    return None


def _likeness(names: list[str], path: Names) -> tuple[int, int, int] | None:
    """Return how much a path is like those names, the less the more; None if it ends in none."""
    last = len(_WORD.findall(path[-1]))
    words = [word.lower() for name in path for word in _WORD.findall(name)]
    ends = ((n, "".join(words[-n:])) for n in range(1, len(words) + 1))
    found = [(max(0, last - n), names.index(end), len(path)) for n, end in ends if end in names]
    return min(found, default=None)


def _text(path: Names) -> str:
    quoted = (one if _IDENTIFIER.fullmatch(one) else f"`{one.replace('`', '``')}`" for one in path)
    return ".".join(quoted)
