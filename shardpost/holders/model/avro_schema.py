"""A schema of Avro, where Avro and Spark do not look: what its fields mean, where a value ends.

Both ignore what follows a value, and Spark all but 64 bits of a decimal up to 18 digits: so each is
read with END behind it, which must be left over, and decimals with all digits that Spark has. Avro
compares no scales and units of the schemas of writer and reader.
"""

import json
import math
from collections import defaultdict
from typing import Any

Path = tuple[str, ...]
Names = frozenset[str]

MOST_FIELDS = 10_000  # Spark has a column for each, at each place where its record stands
MOST_DIGITS, BYTES_OF_LONG = 38, 8  # of Spark's decimals
END = bytes.fromhex("8c1d5ae36f0b4927a4f4be1790d26358")
WHOLE, LEFT = "whole", "left"


class AvroSchema:
    """A schema as Avro writes one: no name in it is defined elsewhere.

    A field has the name that is asked for, if that is an alias of it. `whole` is the schema of a
    value with END behind it. ValueError if it nests too deep, or has too many fields.
    """

    def __init__(self, text: str, asked_for: Names = Names()) -> None:  # noqa: B008 - a value
        self._asked_for = asked_for
        self._meanings = defaultdict[Path, set[str]](set)  # the logical types at each path
        self._aliases: dict[tuple[Path, str], str] = {}  # by the path of a record
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        try:
            fields = {WHOLE: self._read(json.loads(text), (), "", Names())}
        except RecursionError:
            raise ValueError("expected a schema that nests less deep") from None
        fields[LEFT] = {"type": "fixed", "name": "shardpost_left", "size": len(END)}
        made = [{"name": name, "type": kind} for name, kind in fields.items()]
        self.whole = json.dumps({"type": "record", "name": "shardpost_whole", "fields": made})

    def require_meanings_of(self, newest: "AvroSchema") -> None:
        """Raise ValueError for a field that means something else in the newest schema."""
        for path, meanings in self._meanings.items():
            now: Path = ()
            for name in path:
                now = (*now, newest._aliases.get((now, name), name))
            if (other := newest._meanings.get(now, meanings)) != meanings:
                was, is_ = (", ".join(sorted(one)) or "plain" for one in (meanings, other))
                what = ".".join(path) or "the value"
                raise ValueError(f"expected {what} to be {is_}, as in the newest one, found {was}")

    def _read(self, node: Any, path: Path, space: str, within: Names) -> Any:
        """Note what is at a path; return it as it is to be read."""
        self._meanings[path] |= set()
        if len(self._meanings) > MOST_FIELDS:
            raise ValueError(f"expected at most {MOST_FIELDS} fields")
        if isinstance(node, list):
            return [self._read(one, path, space, within) for one in node]
        if isinstance(node, dict):
            return self._type(node, path, space, within)
        if (known := self._named.get(_full(node, space))) is not None:
            self._type(known[0], path, known[1], within)
        return node

    def _type(self, node: dict[str, Any], path: Path, space: str, within: Names) -> Any:
        name = _full(node.get("name", ""), node.get("namespace", space))
        if "name" in node:
            space = name.rpartition(".")[0]
            self._named[name] = node, space
        logical, made = node.get("logicalType"), dict(node)
        if logical == "decimal" and isinstance(node.get("precision"), int):
            logical = f"a decimal of scale {node.get('scale', 0)}"
            size = node.get("size", MOST_DIGITS)
            if size > BYTES_OF_LONG:
                made["precision"] = min(MOST_DIGITS, int(math.log10(2) * (8 * size - 1)))
        self._meanings[path] |= {str(logical)} - {"None", "uuid"}
        for inner, mark in (("items", "[]"), ("values", "{}")):
            if inner in node:
                made[inner] = self._read(node[inner], (*path, mark), space, within)
        if node["type"] == "record" and name not in within:
            inside = within | {name}
            made["fields"] = [self._field(one, path, space, inside) for one in node["fields"]]
        return made

    def _field(self, field: Any, path: Path, space: str, within: Names) -> Any:
        name, aliases = field["name"], field.get("aliases", [])
        if name not in self._asked_for and (asked := self._asked_for.intersection(aliases)):
            name, aliases = min(asked), [name, *aliases]
        self._aliases |= {(path, alias): name for alias in aliases}
        kind = self._read(field["type"], (*path, name), space, within)
        return field | {"name": name, "type": kind, "aliases": aliases}


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
