"""The file that SHARDPOST_TOPICS_FILE names: other declarations of topics, and more topics."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

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
from shardpost.topics.strict_yaml import Place, dotted, read_yaml

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
    found = read_yaml(path, "correct SHARDPOST_TOPICS_FILE")
    try:
        return TopicsFile.model_validate(found.values)
    except ValidationError as error:
        raise UsageError("; ".join(_problems(path, error, found.lines))) from None


def _problems(path: Path, error: ValidationError, lines: dict[Place, int]) -> Iterator[str]:
    for one in error.errors():
        place = tuple(part for part in one["loc"] if part != "[key]")
        line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), 1)
        yield f"{path}, line {line}: {dotted(place)}: {_expected(one)}"


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
