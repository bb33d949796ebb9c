"""The topics as they should be here: declarations, settings, and SHARDPOST_TOPICS_FILE."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr

from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.settings.forms import read_text
from shardpost.topics.declared import DEAD_LETTERS, DECLARED, INPUTS, OWN_STORES, PARTITIONS_AS
from shardpost.topics.model.cluster import UNCLEAN, Expected, with_in_sync
from shardpost.topics.model.departures import AT_LEAST, POLICY, TIMESTAMPS, policies
from shardpost.values.topic_names import TopicName, check_topic
from shardpost.values.yaml_files import EMPTY_IS_A_MAP, Place, YamlFile, text_value
from shardpost.wording import meant

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


def _true_or_false(text: object) -> bool:
    """Return what `true` or `false` means: `yes`, `on` and `1` are other texts here."""
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


Partitions = Annotated[int, Field(ge=1, le=4095)]
Replicas = Annotated[int, Field(ge=1, le=32_767)]
SettingName = Annotated[StrictStr, AfterValidator(_known_setting)]
Value = Annotated[StrictStr, AfterValidator(text_value)]
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
    file = YamlFile.read(path, read_text(path, advice="correct SHARDPOST_TOPICS_FILE"))
    return file.checked(TopicsFile, _names_at, _contradictions(kafka, file))


def _names_at(place: Place) -> Iterable[str]:
    models = {"topics": Overrides, "own_topics": OwnTopic}
    return models.get(str(place[0]) if place else "", TopicsFile).model_fields


def _contradictions(kafka: Kafka, file: YamlFile) -> Iterator[tuple[Place, str]]:
    """Yield where the file contradicts what Shardpost needs of its own topics.

    Another cleanup.policy than the one that a topic is used by; a topic of the user's own that is
    one of Shardpost's.
    """
    ours = {kafka.topic(spec.name): spec.name for spec in DECLARED}
    for name in sorted(file.map("own_topics").keys() & ours.keys()):
        yield (
            ("own_topics", name),
            f"expected a topic of your own, found the topic of `topics.{ours[name]}`: declare "
            "it there",
        )
    for spec in DECLARED:
        place = ("topics", spec.name, "config")
        wanted, given = spec.config[POLICY], file.map(*place).get(POLICY)
        if isinstance(given, str) and policies(given) != policies(wanted):
            text = f"expected {wanted}, as Kafka would remove records that are needed"
            yield (*place, POLICY), f"{text}, found {given!r}"


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
