"""A process that sends one shard, to be halted: `python -m tests.support.shard_process`.

Its settings are those of the environment. It prints what stopped the shard.
"""

import sys

from shardpost.settings import load
from tests.broker.test_sending import run

if __name__ == "__main__":
    sys.stdout.write(str(run(load(), None).error))
