"""Sweep the dead letters: what is due is retried, what no retry can help is parked.

Read: each partition of the store, to its end. Transform: fold it to the live letters, decide about
each. Write: retries, parked letters and tombstones in one Kafka transaction per batch; then the
steps of all letters into the table `dead_letters`.
"""

from shardpost.dead_letters.sweep import sweep_dead_letters
from shardpost.dead_letters.sweep_job import SweepRequest
from shardpost.spark import driver

if __name__ == "__main__":
    driver.run_job(SweepRequest, lambda asked, settings: sweep_dead_letters(settings, asked.now))
