"""`spark-submit warm_compactions.py TIMES`: the topic from nothing, so often in one driver.

Each time into tables and topics of its own. The first is as slow as in a driver of its own; the
seconds of each are printed.
"""

import shutil
import sys
import time

from bench import kafka
from shardpost.holders.spark.compaction import compact
from shardpost.settings import Settings, load
from shardpost.spark import driver
from shardpost.topics.creation import apply_topics
from tests.support.installed import installed


def main(times: int) -> None:
    """Compact into one home after the other, and leave none of them."""
    for number in range(times):
        own = _another(load())
        own.home.mkdir()
        made = [own.topic("share-holders"), own.topic("weekly-emails")]
        apply_topics(installed(own))
        began = time.monotonic()
        with driver.job_errors():
            compact(installed(own))
        print(f"warm compaction {number}: {time.monotonic() - began:.1f} s", flush=True)
        kafka.delete(own, made)
        shutil.rmtree(own.home)


def _another(settings: Settings) -> Settings:
    """Return settings with the same inputs, and a home and outputs that nobody else has."""
    name = f"warm-{time.time_ns()}"
    update = {
        "home": settings.home / name,
        "topics": settings.topics
        | {"share-holders": f"{name}-share-holders", "weekly-emails": f"{name}-weekly-emails"},
    }
    return settings.model_copy(update=update)


if __name__ == "__main__":
    main(int(sys.argv[1]))
