"""A finding of the audit, and the commands in Kafka's own tools that fix what a person decides."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

from shardpost.topics.model.cluster import FoundTopic, Source


class Severity(StrEnum):
    """How bad it is, the worst first.

    Data is lost or will be; one failure away from that; not as declared, with nothing at stake.
    """

    LOSS = "loss"
    RISK = "risk"
    DRIFT = "drift"

    @property
    def rank(self) -> int:
        """Its place in the order, from 0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One departure, of the cluster without `topic`; `rule` is its section of the runbook.

    By default that of the function that finds it.
    """

    rule: str = ""
    severity: Severity = Severity.RISK
    topic: str | None = None
    setting: str
    found: str
    source: Source = "cluster"
    expected: str
    why: str
    fix: str

    @property
    def needs_attention(self) -> bool:
        """Whether data is lost or at risk."""
        return self.severity is not Severity.DRIFT

    @property
    def runbook(self) -> str:
        """Where the runbook says more."""
        return f"docs/runbook.md#{self.rule}"

    def as_json(self) -> dict[str, str | None]:
        """Return the form of `topics audit --json`."""
        form = asdict(self)
        del form["rule"]
        return form | {"why": f"{self.why} ({self.runbook})"}


APPLY = "shardpost topics apply"


def set_on_topic(bootstrap: str, topic: str, setting: str, value: str) -> str:
    """Return the command that sets a topic's setting; a list stands in brackets there."""
    given = f"[{value}]" if "," in value else value
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {setting}={given}"
    )


def reassign(
    bootstrap: str, topic: str, found: FoundTopic, brokers: frozenset[int], replicas: int
) -> str:
    """Return the command that adds replicas to a topic: those it has, and others in turn."""
    ordered = sorted(brokers)
    partitions = []
    for number, partition in enumerate(found.partitions):
        start = number % len(ordered) if ordered else 0
        others = [one for one in ordered[start:] + ordered[:start] if one not in partition.replicas]
        wanted = [*partition.replicas, *others][: max(replicas, len(partition.replicas))]
        partitions.append({"topic": topic, "partition": number, "replicas": wanted})
    document = json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute"
        f" --reassignment-json-file <(echo '{document}')"
    )
