"""What holds for Kafka as Shardpost uses it: the same tests on a real broker and on the twin.

A test module subclasses the contract and gives the fixtures `cluster` and `nowhere`.
"""

from tests.support.kafka_contract.reading import ReadingContract, WatermarksContract
from tests.support.kafka_contract.topics import TopicsContract
from tests.support.kafka_contract.transactions import (
    GroupsContract,
    PlacementContract,
    TransactionsContract,
)


class KafkaContract(
    ReadingContract,
    WatermarksContract,
    GroupsContract,
    TransactionsContract,
    PlacementContract,
    TopicsContract,
):
    """All that holds."""
