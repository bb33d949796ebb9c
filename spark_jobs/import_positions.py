"""Compare a full list of positions with what is open, and write the difference to `positions`.

Read: the list (CSV, JSON, Parquet, JDBC) and the table `positions` at the newest snapshot.
Transform: rows become records, judged by the rules of the compaction; the difference by key. Write:
if it is applied, upserts and tombstones in Kafka transactions, and that it was done.
"""

from shardpost.position_import.model.source import ImportRequest
from shardpost.position_import.run import import_positions
from shardpost.spark import driver

if __name__ == "__main__":
    driver.run_job(
        ImportRequest,
        lambda asked, settings: import_positions(settings, asked),
        noted_as=lambda asked, job: job if asked.is_applied else None,
    )
