"""What the rules of the audit look at, all of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from shardpost.topics.model.expected import INTERNAL, REPLICAS, Expected
from shardpost.topics.model.found import Built, Cluster, FoundTopic


@dataclass(frozen=True)
class View:
    """A cluster beside what is expected of it.

    `built` is None without a snapshot; `client` has the client settings that a user gave;
    `request_days` is how old a run request may be.
    """

    cluster: Cluster
    expected: tuple[Expected, ...]
    bootstrap: str
    now: datetime
    built: Built | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    request_days: int = 6

    @property
    def there(self) -> Iterator[tuple[Expected, FoundTopic]]:
        """Yield each topic that exists, Kafka's own at the end."""
        for one in (*self.expected, *INTERNAL):
            if one.name in self.cluster.topics:
                yield one, self.cluster.topics[one.name]

    @property
    def has_few_brokers(self) -> bool:
        """Tell whether there cannot be three replicas, which is said once and not of each topic."""
        return len(self.cluster.known_brokers) < REPLICAS

    def product(self, name: str) -> tuple[str, FoundTopic | None]:
        """Return one of the product's topics: its name in the cluster, and what was found."""
        topic = next((one.name for one in self.expected if one.product == name), name)
        return topic, self.cluster.topics.get(topic)
