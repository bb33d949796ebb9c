"""Compare a list of positions, clients or exchanges with what is open; write the difference.

Read: the list (CSV, JSON, Parquet, JDBC) and the table of its input at the newest snapshot.
Transform: rows become records, judged by the rules of the compaction; the difference by key. Write:
if it is applied, upserts and tombstones in Kafka transactions, and that it was done.
"""

from shardpost.imports.model.source import ImportRequest
from shardpost.imports.run import import_list
from shardpost.spark import driver

if __name__ == "__main__":
    driver.run_job(
        ImportRequest,
        lambda asked, settings: import_list(settings, asked),
        noted_as=lambda asked, job: job if asked.is_applied else None,
    )
