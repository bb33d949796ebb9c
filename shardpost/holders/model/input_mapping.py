"""How the records of an input look: SHARDPOST_INPUTS, a YAML file. Without it they are plain JSON.

A name in it is a path: of the value without its envelope, or of the record's key after `key.`. All
else is an expression of Spark SQL over such names. docs/inputs.md has the rules.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictStr

from shardpost.holders.model.fields import CLIENT_FIELDS, EXCHANGE_FIELDS, POSITION_FIELDS, Field
from shardpost.values.topic_names import INPUTS, TopicName
from shardpost.values.yaml_files import EMPTY_IS_A_MAP, Place, YamlFile, text_value
from shardpost.wording import meant

Format = Literal["json", "avro", "json-schema", "protobuf"]
Part = Literal["key", "value"]
Names = tuple[str, ...]  # of a path

# A client's language, which has no column.
LANGUAGE = "Language"
FIELDS: dict[TopicName, tuple[Field, ...]] = {
    "positions": POSITION_FIELDS,
    "clients": CLIENT_FIELDS,
    "exchanges": EXCHANGE_FIELDS,
}
_PART = r"(?:[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`)"
_PATH = re.compile(rf"{_PART}(?:\.{_PART})*")
# Quoted texts and names of an expression, which may hold brackets.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`", re.DOTALL)
_PAIR = re.compile(r"\([^][()]*\)|\[[^][()]*\]")


def names_of(name: TopicName) -> list[str]:
    """Return the names of the fields of an input, by its name in the contract."""
    return [field.name for field in FIELDS[name]] + [LANGUAGE] * (name == "clients")


def path_of(text: str) -> Names | None:
    """Return the names of a path such as `customer.id`; None for any other expression."""
    if not _PATH.fullmatch(text) or text.lower() in {"true", "false", "null"}:
        return None
    parts = re.findall(_PART, text)
    return tuple(p[1:-1].replace("``", "`") if p.startswith("`") else p for p in parts)


def _expression(text: str) -> str:
    """Check what can be checked of an expression without Spark: quotes and brackets."""
    text = text_value(text).strip()
    left = _QUOTED.sub("", text)
    while _PAIR.search(left):
        left = _PAIR.sub("", left)
    if found := re.search(r"[][()'\"`]", left):
        raise ValueError(f"expected {found[0]} in a pair")
    return text


def registry_url(text: str) -> str:
    """Check where a registry is."""
    if not re.fullmatch(r"https?://[^\s/@?#]+(?:/[^\s@?#]*)?", text):
        raise ValueError("expected a URL such as https://host:port, without a login")
    return text


Expression = Annotated[StrictStr, AfterValidator(_expression)]
_Text = Annotated[StrictStr, AfterValidator(text_value)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Registry(_Entry):
    """Where schemas are, and who asks for them; `ca` is a file of certificates."""

    url: Annotated[StrictStr, AfterValidator(registry_url)]
    user: _Text | None = None
    ca: _Text | None = None


class InputMapping(_Entry):
    """How the records of one input look; `fields` are those of ours that the file names.

    `key_format` says what the bytes of a key are, `key` what of it, or of the value, is the id.
    Hashable, and equal ones decode alike.
    """

    format: Format = "json"
    key_format: Format | Literal["text"] | None = None
    registry: Registry | None = None
    envelope: Literal["none", "connect", "debezium"] = "none"
    key: Expression = "key"
    fields: Annotated[dict[str, Expression], EMPTY_IS_A_MAP] = {}
    where: Expression | None = None

    def __hash__(self) -> int:
        return hash(json.dumps(self.form, sort_keys=True))

    @property
    def form(self) -> dict[str, Any]:
        """What decides what a record becomes: all but where its schemas are."""
        return self.model_dump(exclude={"registry"}, exclude_defaults=True)

    def format_of(self, part: Part) -> str:
        """Return the format of the values, or of the keys: by default text beside bare JSON."""
        if part == "value":
            return self.format
        is_bare = self.format == "json" and self.envelope == "none"
        return self.key_format or ("text" if is_bare else self.format)

    @property
    def formats(self) -> set[str]:
        """The formats of its values and keys."""
        return {self.format, self.format_of("key")}

    @property
    def has_schemas(self) -> bool:
        """Whether a registry has schemas of its keys or values."""
        return not self.formats <= {"json", "text"}

    @property
    def shares_ids(self) -> bool:
        """Whether several keys, as bytes, may be of one id."""
        return self.key != "key" or self.format_of("key") != "text"

    def sources(self, name: TopicName) -> dict[str, str]:
        """Return {our field: a path or an expression}; one that is not named has our own name."""
        return {one: one for one in names_of(name)} | self.fields

    def located(self, path: Names) -> tuple[Part, Names]:
        """Return whether a path is one of the key or of the value, and the rest of it.

        `value` may stand before a name of the value, and `after` before one of Debezium's row.
        """
        roots: dict[str, Part] = {"key": "key", "value": "value"}
        if self.envelope == "debezium":
            roots["after"] = "value"
        part = roots.get(path[0])
        return (part, path[1:]) if part else ("value", path)

    def found_in(self, value: bytes, source: str) -> Any:
        """Return what a path names in the row of a value of JSON; None of anything else."""
        part, names = self.located(path_of(source) or ("key",))
        prefixes: dict[str, list[Names]] = {"none": [()], "connect": [("payload",)]}
        for prefix in prefixes.get(self.envelope, [("after",), ("payload", "after")]):
            try:
                found: Any = json.loads(value) if part == "value" else None
                for name in (*prefix, *names):
                    found = found[name]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            return found
        return None


class InputsFile(_Entry):
    """The whole file."""

    positions: Annotated[InputMapping, EMPTY_IS_A_MAP] = InputMapping()
    clients: Annotated[InputMapping, EMPTY_IS_A_MAP] = InputMapping()
    exchanges: Annotated[InputMapping, EMPTY_IS_A_MAP] = InputMapping()


Mappings = dict[TopicName, InputMapping]


def text_of(mappings: Mappings) -> str | None:
    """Return mappings as JSON, as a snapshot has them: None where all inputs are plain."""
    forms = {name: one.form for name, one in mappings.items()}
    return json.dumps(forms, sort_keys=True) if forms else None


def mapping_in(text: str | None, name: TopicName) -> InputMapping | None:
    """Return the mapping of an input in such a text."""
    form = json.loads(text or "{}").get(name)
    return None if form is None else InputMapping(**form)


def read_mappings(path: Path, text: str) -> Mappings:
    """Return the mappings of those inputs that are not plain; UsageError lists all mistakes."""
    file = YamlFile.read(path, text)
    checked = file.checked(InputsFile, _names_at, _unknown_fields(file))
    mappings: Mappings = {name: getattr(checked, name) for name in INPUTS}
    file.checked(InputsFile, _names_at, _contradictions(mappings))
    return {name: one for name, one in mappings.items() if one != InputMapping()}


def _names_at(place: Place) -> Iterable[str]:
    is_registry = place[1:] == ("registry",)
    model = InputsFile if not place else Registry if is_registry else InputMapping
    return model.model_fields


def _unknown_fields(file: YamlFile) -> Iterator[tuple[Place, str]]:
    for name in INPUTS:
        known = names_of(name)
        for field in file.map(name, "fields").keys() - {*known}:
            yield (name, "fields", field), f"unknown field{meant(field, known)}"


def _contradictions(mappings: Mappings) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with entries of the right form."""
    for name, one in mappings.items():
        if one.has_schemas and one.registry is None:
            yield (name,), "expected a registry, which has its schemas, found none"
        if one.registry and not one.has_schemas:
            yield (name, "registry"), "expected none, as json and text need no schemas"
        if one.envelope == "connect" and one.format != "json":
            yield (name, "envelope"), f"expected none or debezium, as {one.format} has no other"
        sources: list[tuple[Names, str]] = [(("key",), one.key)]
        sources += [(("fields", of), text) for of, text in one.fields.items()]
        for place, text in sources:
            for wanted in _wanted(one, path_of(text), place[-1]):
                yield (name, *place), f"expected {wanted}, found {text!r}"


def _wanted(mapping: InputMapping, path: Names | None, field: str) -> Iterator[str]:
    """Yield what should be there instead of a path; or, of the language, of None."""
    if path is None:
        yield from ["a path"] * (field == LANGUAGE)
        return
    part, names = mapping.located(path)
    if part == "value" and not names:
        yield "a name in the value"
    if part == "key" and names and mapping.format_of("key") == "text":
        yield "`key` alone, as keys are text (key_format)"
