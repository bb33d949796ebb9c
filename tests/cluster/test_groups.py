"""Commands that ask coordinators of groups while these die: they answer, or say why not."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION
from shardpost.kafka.offsets import commit_offsets
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.cluster import Cluster
from tests.support.command_line import CommandLine
from tests.support.how_far import up_to
from tests.support.installed import installed

EACH_SECONDS = 1.0


def test_no_command_dies_with_a_coordinator(cluster: Cluster, settings: Settings) -> None:
    apply_topics(installed(settings))
    for number in range(8):
        commit_offsets(
            installed(settings).kafka, f"reader-{number}", {settings.topic("positions"): {0: 0}}
        )
    cluster.await_replicas()
    shardpost, over = CommandLine(settings.environ()), Event()

    def ask() -> set[int]:
        codes = set()
        while not over.is_set():
            codes.add(shardpost.run("lag", "--json").returncode)
        return codes

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            for turn in range(up_to(12, 3)):
                with cluster.brokers[turn % 3 + 1].killed():
                    time.sleep(EACH_SECONDS)
                cluster.await_replicas()
        finally:
            over.set()
    codes = set.union(*(one.result() for one in asking))
    assert codes <= {DONE, COULD_NOT, NEEDS_ATTENTION}
