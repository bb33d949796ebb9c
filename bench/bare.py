"""The least that a sweep could be: one transactional producer that writes the same records.

Run as `python -m bench.bare ADDRESS COUNT BATCH STORE RETRIES`, measured from the process's start.
"""

import sys
from datetime import UTC, datetime

from confluent_kafka import Producer

from bench.letter_stream import dealt_with


def main(address: str, count: int, batch: int, topics: tuple[str, str]) -> None:
    """Write the retries and tombstones of so many letters, in transactions of so many letters."""
    config = {
        "bootstrap.servers": address,
        "transactional.id": f"{topics[0]}/bare",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
    }
    producer = Producer(config)
    producer.init_transactions(60)
    now = datetime.now(UTC)
    for first in range(0, count, batch):
        producer.begin_transaction()
        for number in range(first, min(first + batch, count)):
            for record in dealt_with(number, now, *topics):
                producer.produce(**record._asdict())
        producer.commit_transaction(60)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4], sys.argv[5]))
