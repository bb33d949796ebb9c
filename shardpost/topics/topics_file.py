"""The file that SHARDPOST_TOPICS_FILE names: what is declared of topics otherwise, and more topics.

All scalars are taken as text, so that `on`, `1:30` and `0640` are what they look like.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from shardpost.errors import UsageError
from shardpost.settings import forms
from shardpost.topic_names import TopicName
from shardpost.topics.model.changes import AT_LEAST, POLICY, TIMESTAMPS
from shardpost.topics.model.expected import UNCLEAN

Place = tuple[int | str, ...]
_WHOLE = re.compile(r"-?\d+")
_VALUES = {
    POLICY: ("compact", "delete"),
    TIMESTAMPS: ("CreateTime", "LogAppendTime"),
    UNCLEAN: ("false", "true"),
}


def _known_setting(name: str) -> str:
    if not name or set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789."):
        raise ValueError("expected a topic setting of Kafka, such as retention.ms")
    return name


def _whole(text: object) -> object:
    if isinstance(text, str) and not text.isdecimal():
        raise ValueError("expected a whole number")
    return text


def _true_or_false(text: object) -> object:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _known_values(config: dict[str, str]) -> dict[str, str]:
    """Check the values of those settings that are compared by more than their text."""
    for name, value in config.items():
        if name in AT_LEAST and not _WHOLE.fullmatch(value):
            raise ValueError(f"expected a whole number for {name}, found {value!r}")
        known = _VALUES.get(name, ())
        for one in value.split(",") if known else ():
            if one.strip() not in known:
                raise ValueError(f"expected {' or '.join(known)} for {name}, found {one!r}")
    return config


def _value(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a value, found none")
    return text


def _map(value: object) -> object:
    # `config:` with nothing after it is the empty map that it looks like.
    return {} if value == "" else value


EMPTY_IS_A_MAP = BeforeValidator(_map)
Partitions = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=4095)]
Replicas = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=32_767)]
SettingName = Annotated[StrictStr, AfterValidator(_known_setting)]
Value = Annotated[StrictStr, AfterValidator(_value)]
Name = Annotated[StrictStr, AfterValidator(forms.topic)]


class Overrides(BaseModel):
    """What is declared of one topic."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partitions: Partitions | None = None
    replication_factor: Replicas | None = None
    config: Annotated[dict[SettingName, Value], EMPTY_IS_A_MAP, AfterValidator(_known_values)] = {}


class OwnTopic(Overrides):
    """A topic of the user's own; partitions may be added if it is not `keyed`."""

    keyed: Annotated[bool, BeforeValidator(_true_or_false)] = True


class TopicsFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster_id: Value | None = None
    replication_factor: Replicas | None = None
    topics: Annotated[dict[TopicName, Annotated[Overrides, EMPTY_IS_A_MAP]], EMPTY_IS_A_MAP] = {}
    own_topics: Annotated[dict[Name, Annotated[OwnTopic, EMPTY_IS_A_MAP]], EMPTY_IS_A_MAP] = {}


NOTHING_DECLARED = TopicsFile()


def read_topics_file(path: Path | None) -> TopicsFile:
    """Return what the file declares; UsageError says all that is wrong with it, and where."""
    if path is None:
        return NOTHING_DECLARED
    lines: dict[Place, int] = {}
    try:
        root = yaml.compose(_text(path), Loader=yaml.BaseLoader)
        values = {} if root is None else _plain(root, (), lines, set())
        return TopicsFile.model_validate(values)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{where}: expected YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: expected YAML: {' '.join(str(error).split())}") from None
    except _WrongYamlError as error:
        raise UsageError(f"{path}, line {error.line}: {error}") from None
    except ValidationError as error:
        raise UsageError("; ".join(_problems(path, error, lines))) from None


class _WrongYamlError(Exception):
    """YAML of a kind that is not taken."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: expected text in UTF-8, found other bytes at byte {error.start}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read: {error.strerror}: correct SHARDPOST_TOPICS_FILE"
        ) from None


def _plain(node: yaml.Node, place: Place, lines: dict[Place, int], seen: set[int]) -> Any:
    """Return the node's values; notes the line of each, and refuses what would be misread."""
    line = node.start_mark.line + 1
    lines[place] = line
    if id(node) in seen:
        raise _WrongYamlError(line, f"{_dotted(place)}: expected no alias (`*`)")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, (*place, n), lines, seen) for n, one in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _WrongYamlError(at, f"{_dotted(place)}: expected a name, found a list or a map")
        if key.value in found:
            raise _WrongYamlError(at, f"{_dotted((*place, key.value))}: expected once, found twice")
        found[key.value] = _plain(value, (*place, key.value), lines, seen)
        lines[*place, key.value] = at
    return found


def _problems(path: Path, error: ValidationError, lines: dict[Place, int]) -> Iterator[str]:
    for one in error.errors():
        place = tuple(part for part in one["loc"] if part != "[key]")
        line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), 1)
        yield f"{path}, line {line}: {_dotted(place)}: {_expected(one)}"


def _expected(error: ErrorDetails) -> str:
    found = "" if isinstance(error["input"], dict) else f", found {error['input']!r}"
    match error["type"]:
        case "extra_forbidden":
            return "expected no such name here"
        case "literal_error":
            return f"expected one of {error['ctx']['expected']}{found}"
        case "dict_type" | "model_type":
            return f"expected a map of names{found}"
        case "string_type":
            return f"expected a single value{found}"
        case _:
            return error["msg"].removeprefix("Value error, ") + found


def _dotted(place: Place) -> str:
    return ".".join(map(str, place)) or "the file"
