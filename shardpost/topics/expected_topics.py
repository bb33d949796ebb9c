"""The topics as they should be here: what is declared, the settings, and the file of topics."""

from shardpost.errors import UsageError
from shardpost.settings import Settings
from shardpost.topics.declared import (
    DECLARED,
    INPUTS,
    OWN_STORES,
    PARTITIONS_AS,
    PARTITIONS_AS_LARGEST_ORIGIN,
    TopicSpec,
)
from shardpost.topics.model.changes import POLICY, policies
from shardpost.topics.model.expected import Expected, with_in_sync
from shardpost.topics.topics_file import Overrides, TopicsFile


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
