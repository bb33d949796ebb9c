"""Spark's daemon of Python workers, with what a shard's task imports in memory already.

Each worker is forked from it, and would otherwise spend a second of processor time on imports.
"""

import gc

from pyspark.daemon import manager

import shardpost.weekly_email.send_shard  # noqa: F401

if __name__ == "__main__":
    gc.freeze()  # a worker's collections leave alone what it shares with the others
    manager()  # type: ignore[no-untyped-call]
