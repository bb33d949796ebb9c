"""The topics as they should be here: declarations, settings, and the file of SHARDPOST_TOPICS_FILE.

Its YAML is read as text, so `on`, `1:30` and `0640` stay as they are written; aliases are refused,
tags mean nothing, and each error has its line.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
from shardpost.settings import Settings, forms
from shardpost.topic_names import TopicName
from shardpost.topics.declared import (
    DECLARED,
    INPUTS,
    OWN_STORES,
    PARTITIONS_AS,
    PARTITIONS_AS_LARGEST_ORIGIN,
    TopicSpec,
)
from shardpost.topics.model.cluster import UNCLEAN, Expected, with_in_sync
from shardpost.topics.model.plan import AT_LEAST, POLICY, TIMESTAMPS, policies

Place = tuple[int | str, ...]


class Yaml(NamedTuple):
    """Maps, lists and texts; and the line of each place."""

    values: Any
    lines: dict[Place, int]


def read_yaml(path: Path, advice: str) -> Yaml:
    """Return what a file has, an empty one a map; UsageError says what is wrong with it, and where.

    `advice` is what to do if it cannot be read.
    """
    found = Yaml({}, {})
    try:
        root = yaml.compose(_text(path, advice), Loader=yaml.BaseLoader)
        if root is None:
            return found
        return found._replace(values=_plain(root, (), found.lines, set()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{where}: expected YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: expected YAML: {' '.join(str(error).split())}") from None
    except _WrongYamlError as error:
        raise UsageError(f"{path}, line {error.line}: {error}") from None


def dotted(place: Place) -> str:
    """Return a place as people name it."""
    return ".".join(map(str, place)) or "the file"


class _WrongYamlError(Exception):
    """YAML of a kind that is not taken."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _text(path: Path, advice: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: expected text in UTF-8, found other bytes at byte {error.start}"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}: {advice}") from None


def _plain(node: yaml.Node, place: Place, lines: dict[Place, int], seen: set[int]) -> Any:
    """Return the node's values; notes the line of each, and refuses what would be misread."""
    line = node.start_mark.line + 1
    lines[place] = line
    if id(node) in seen:
        raise _WrongYamlError(line, f"{dotted(place)}: expected no alias (`*`)")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, (*place, n), lines, seen) for n, one in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _WrongYamlError(at, f"{dotted(place)}: expected a name, found a list or a map")
        if key.value in found:
            raise _WrongYamlError(at, f"{dotted((*place, key.value))}: expected once, found twice")
        found[key.value] = _plain(value, (*place, key.value), lines, seen)
        lines[*place, key.value] = at
    return found


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


# `config:` with nothing after it is the empty map that it looks like.
EMPTY_IS_A_MAP = BeforeValidator(lambda value: {} if value == "" else value)
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


def expected_topics(settings: Settings, file: TopicsFile) -> list[Expected]:
    """Return the product's topics and those of the user's own; UsageError if they contradict."""
    ours = [_of_product(settings, file, spec) for spec in DECLARED]
    names = {one.name: one.product for one in ours}
    for name in file.own_topics:
        if name in names:
            raise UsageError(
                f"{settings.topics_file}: own_topics.{name}: expected a topic of your own, found"
                f" that of `topics.{names[name]}`: declare it there"
            )
    return [*ours, *(_own(settings, file, name) for name in file.own_topics)]


def _of_product(settings: Settings, file: TopicsFile, spec: TopicSpec) -> Expected:
    given = file.topics.get(spec.name, Overrides())
    _require_policy(settings, spec, given)
    replicas = _replicas(settings, file, given)
    return Expected(
        settings.topic(spec.name),
        with_in_sync(spec.config | given.config, replicas),
        replicas,
        given.partitions,
        _partitions_as(settings, spec),
        product=spec.name,
        is_own_store=spec.name in OWN_STORES,
    )


def _own(settings: Settings, file: TopicsFile, name: str) -> Expected:
    given = file.own_topics[name]
    replicas = _replicas(settings, file, given)
    config = with_in_sync(given.config, replicas)
    return Expected(name, config, replicas, given.partitions, keyed=given.keyed)


def _replicas(settings: Settings, file: TopicsFile, given: Overrides) -> int:
    return given.replication_factor or file.replication_factor or settings.replication_factor


def _partitions_as(settings: Settings, spec: TopicSpec) -> frozenset[str]:
    """Return the topics of which the largest decides how many partitions a new topic has."""
    if spec.name in PARTITIONS_AS_LARGEST_ORIGIN:
        inputs = {settings.topic(one.name) for one in INPUTS}
        return frozenset(inputs | settings.retry_rules.of_origin.keys())
    other = PARTITIONS_AS.get(spec.name)
    return frozenset({settings.topic(other)} if other else ())


def _require_policy(settings: Settings, spec: TopicSpec, given: Overrides) -> None:
    """Refuse another policy than the one that a topic is used by."""
    wanted, found = spec.config[POLICY], given.config.get(POLICY, spec.config[POLICY])
    if policies(found) != policies(wanted):
        raise UsageError(
            f"{settings.topics_file}: topics.{spec.name}.config.{POLICY}: expected {wanted}, as"
            f" Kafka would remove records that are needed, found {found!r}"
        )
