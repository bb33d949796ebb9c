"""The least that a sweep could be: one transactional producer that writes the same records.

Run as `python -m bench.bare ADDRESS COUNT BATCH STORE RETRIES`; prints the seconds since its start
without those in which it made the records, which a sweep has not to make.
"""

import sys
import time
from datetime import UTC, datetime

import psutil
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
    made = 0.0
    for first in range(0, count, batch):
        began = time.perf_counter()
        numbers = range(first, min(first + batch, count))
        records = [one._asdict() for n in numbers for one in dealt_with(n, now, *topics)]
        made += time.perf_counter() - began
        producer.begin_transaction()
        for record in records:
            producer.produce(**record)
        producer.commit_transaction(60)
    sys.stderr.write(f"{time.time() - psutil.Process().create_time() - made}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4], sys.argv[5]))
