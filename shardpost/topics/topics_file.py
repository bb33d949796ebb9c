"""The topics as they should be here: declarations, settings, and the file of SHARDPOST_TOPICS_FILE.

Its YAML is read as text, so `on`, `1:30` and `0640` stay as they are written; each error has its
line.
"""

import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, get_args

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

from shardpost.errors import UsageError, first_line
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.settings.forms import read_text
from shardpost.topics.declared import DEAD_LETTERS, DECLARED, INPUTS, OWN_STORES, PARTITIONS_AS
from shardpost.topics.model.cluster import UNCLEAN, Expected, with_in_sync
from shardpost.topics.model.departures import AT_LEAST, POLICY, TIMESTAMPS, policies
from shardpost.values.topic_names import TopicName, check_topic
from shardpost.wording import expected, meant

Place = tuple[int | str, ...]


def _values(node: yaml.Node, seen: set[int]) -> Any:
    """Return a node as maps, lists and texts; MarkedYAMLError for what would be misread."""
    if id(node) in seen:
        problem = "an alias (`*`), which is not supported"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_values(one, seen) for one in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in found:
            is_name = isinstance(key, yaml.ScalarNode)
            problem = f"{key.value!r} appears twice" if is_name else "a list or a map as a name"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        found[key.value] = _values(value, seen)
    return found


def _line(node: yaml.Node, place: Place) -> int:
    """Return the line of a place, or of what is there of it."""
    line = 1
    for part in place:
        names = node.value if isinstance(node, yaml.MappingNode) else ()
        there = {key.value: (key, value) for key, value in names}
        if part not in there:
            break
        key, node = there[part]
        line = key.start_mark.line + 1
    return line


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


def _known_values(config: dict[str, str]) -> dict[str, str]:
    """Check the values of those settings that are compared by more than their text."""
    wrong = []
    for name, value in config.items():
        if name in AT_LEAST and not _WHOLE.fullmatch(value):
            wrong.append(f"expected a whole number for {name}, found {value!r}")
        known = _VALUES.get(name, ())
        wrong += [
            f"expected {' or '.join(known)} for {name}, found {one!r}{meant(one, known)}"
            for one in value.split(",")
            if known and one.strip() not in known
        ]
    if wrong:
        raise ValueError("; ".join(wrong))
    return config


def _value(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a value, found none")
    return text


def _true_or_false(text: object) -> bool:
    """Return what `true` or `false` means: `yes`, `on` and `1` are other texts here."""
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


# `config:` with nothing after it is the empty map that it looks like.
EMPTY_IS_A_MAP = BeforeValidator(lambda value: {} if value == "" else value)
Partitions = Annotated[int, Field(ge=1, le=4095)]
Replicas = Annotated[int, Field(ge=1, le=32_767)]
SettingName = Annotated[StrictStr, AfterValidator(_known_setting)]
Value = Annotated[StrictStr, AfterValidator(_value)]
Name = Annotated[StrictStr, AfterValidator(check_topic)]


class Overrides(BaseModel):
    """The declaration of one topic."""

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


def read_topics_file(kafka: Kafka, path: Path | None) -> TopicsFile:
    """Return the file's declarations; UsageError lists all mistakes, with their lines."""
    if path is None:
        return NOTHING_DECLARED
    text = read_text(path, advice="correct SHARDPOST_TOPICS_FILE")
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        values = _values(root, set()) if root else {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise UsageError(f"{path}{where}: expected YAML: {problem}") from None
    problems, file = [*_contradictions(kafka, values)], NOTHING_DECLARED
    try:
        file = TopicsFile.model_validate(values)
    except ValidationError as error:
        places = [tuple(part for part in one["loc"] if part != "[key]") for one in error.errors()]
        wrong = zip(places, error.errors(), strict=True)
        problems[:0] = [(place, _expected(one, place)) for place, one in wrong]
    if problems:
        said = dict.fromkeys(
            (_line(root, place), f"{'.'.join(map(str, place)) or 'the file'}: {text}")
            for place, text in problems
        )
        ordered = sorted(said, key=itemgetter(0))
        raise UsageError("; ".join(f"{path}, line {line}: {text}" for line, text in ordered))
    return file


def _expected(error: ErrorDetails, place: Place) -> str:
    found = "" if isinstance(error["input"], dict) else f", found {error['input']!r}"
    match error["type"]:
        case "extra_forbidden":
            model = {"topics": Overrides, "own_topics": OwnTopic}.get(str(place[0]), TopicsFile)
            return f"unknown name{meant(str(place[-1]), model.model_fields)}"
        case "literal_error":
            said = meant(str(error["input"]), get_args(TopicName))
            return f"expected one of {error['ctx']['expected']}{found}{said}"
        case _:
            return expected(error) + found


def _contradictions(kafka: Kafka, values: Any) -> Iterator[tuple[Place, str]]:
    """Yield where the file contradicts what Shardpost needs of its own topics.

    Another cleanup.policy than the one that a topic is used by; a topic of the user's own that is
    one of Shardpost's.
    """
    ours = {kafka.topic(spec.name): spec.name for spec in DECLARED}
    for name in sorted(_map(values, "own_topics").keys() & ours.keys()):
        yield (
            ("own_topics", name),
            f"expected a topic of your own, found the topic of `topics.{ours[name]}`: declare "
            "it there",
        )
    for spec in DECLARED:
        place = ("topics", spec.name, "config")
        wanted, given = spec.config[POLICY], _map(values, *place).get(POLICY)
        if isinstance(given, str) and policies(given) != policies(wanted):
            text = f"expected {wanted}, as Kafka would remove records that are needed"
            yield (*place, POLICY), f"{text}, found {given!r}"


def _map(values: Any, *place: str) -> dict[str, Any]:
    """Return the map at a place, an empty one where there is none."""
    for part in place:
        values = values.get(part) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def expected_topics(installation: Installation) -> tuple[list[Expected], TopicsFile]:
    """Return the product's topics and those of the user's own; and the file that they are by."""
    kafka, settings = installation.kafka, installation.settings
    file = read_topics_file(kafka, settings.topics_file)

    def expected(name: str, given: Overrides, config: dict[str, str], **more: Any) -> Expected:
        usual = file.replication_factor or settings.replication_factor
        replicas = given.replication_factor or usual
        config = with_in_sync(config | given.config, replicas)
        return Expected(name, config, replicas, given.partitions, **more)

    origins = {*(kafka.topic(one.name) for one in INPUTS), *settings.retry_rules.of_origin}
    partitions_as = {name: {kafka.topic(other)} for name, other in PARTITIONS_AS.items()}
    partitions_as[DEAD_LETTERS.name] = origins
    ours = [
        expected(
            kafka.topic(spec.name),
            file.topics.get(spec.name, Overrides()),
            spec.config,
            partitions_as=partitions_as.get(spec.name, ()),
            product=spec.name,
            is_own_store=spec.name in OWN_STORES,
        )
        for spec in DECLARED
    ]
    own = (expected(name, it, {}, keyed=it.keyed) for name, it in file.own_topics.items())
    return [*ours, *own], file
