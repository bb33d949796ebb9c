"""The size of a run, and the thresholds that depend on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Limits of records, rows, clients or bytes up to which the way for small runs is taken."""

    # Compiling a plan takes longer than running it, unless the same plan comes again and again.
    interpreted: int = 1_500
    # Planning again at each stage takes longer than running the plan as it is.
    planned_once: int = 20_000
    # One task per core is best, and the keys fit into one process: what they change is found
    # without Spark.
    few: int = 200_000
    # Records are read before Spark plans, so many bytes of which are in memory a few times.
    read_at_once: int = 200_000
    bytes_at_once: int = 32 << 20
    # A task reads or sorts no more, whatever there is: some 270 bytes of memory each.
    per_task: int = 2_000_000
    # The keys of a layer of so many rows are broadcast; else the tables are shuffled.
    broadcast_keys: int = 2_000_000
    # Of so many records of a topic, the coordinates of the latest are broadcast: some 30 bytes
    # each, in the driver's memory too.
    broadcast_coordinates: int = 20_000_000
    # Clients are listed in one query, and so much of what is known of them is held in memory: first
    # as Arrow has it, and then as texts of Python, which are some six times as large.
    clients_at_once: int = 20_000
    lists_at_once: int = 16 << 20


THRESHOLDS = Thresholds()
