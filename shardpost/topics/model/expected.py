"""A topic as it should be."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shardpost.topic_names import TopicName

IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
# With three replicas and two of them written, one broker may fail and nothing is lost or stands.
REPLICAS = 3
IN_SYNC_OF_THREE = 2


@dataclass(frozen=True)
class Expected:
    """A declared topic under its name in this cluster.

    `partitions` is None where nothing was declared: then a new topic gets as many as the largest of
    `partitions_as` has, or else the default. `product` is its name in the contract; None for a
    topic of the user's own. `is_own_store`: Shardpost alone writes it, always with keys, of which
    only the last record matters.
    """

    name: str
    config: Mapping[str, str]
    replicas: int
    partitions: int | None = None
    partitions_as: Collection[str] = ()
    keyed: bool = True
    product: TopicName | None = None
    is_own_store: bool = False
    is_internal: bool = False

    @property
    def least_replicas(self) -> int:
        """Return how many replicas it needs; fewer than three only as declared of a user's own."""
        is_own = self.product is None and not self.is_internal
        return self.replicas if is_own else max(self.replicas, REPLICAS)


def with_in_sync(config: Mapping[str, str], replicas: int) -> dict[str, str]:
    """Return settings with as many replicas in sync as that many replicas allow."""
    least = {IN_SYNC: str(IN_SYNC_OF_THREE)} if replicas >= REPLICAS else {}
    return {**least, **config}


# Kafka creates them itself; offsets of groups and the ends of transactions are in them.
INTERNAL = tuple(
    Expected(
        name,
        {"cleanup.policy": "compact", UNCLEAN: "false", IN_SYNC: str(IN_SYNC_OF_THREE)},
        REPLICAS,
        is_internal=True,
    )
    for name in ("__consumer_offsets", "__transaction_state")
)
