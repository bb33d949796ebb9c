"""Commands on a Spark whose workers are not in the driver: a standalone cluster off loopback."""

import re
import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.spark.submit import submit
from tests.support.compacting import agree
from tests.support.record_streams import Stream
from tests.support.reference import Raw, position
from tests.support.spark_cluster import own_address, spark_cluster


@pytest.mark.one_of("other stacks and clusters")
def test_compact_runs_on_workers_that_reach_the_driver_by_its_address(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with spark_cluster(tmp_path, address) as cluster:
        settings = stream.settings.model_copy(update={"spark_master": cluster.master})
        stream.send([position("1", "client1", "NASDAQ"), Raw("positions", b"2", b"{")])
        code, result = submit(settings, COMPACT_POSITIONS)
        assert (code, result["rejected"]) == (0, 1)
        logs = cluster.executor_logs()
    drivers = {host for log in logs for host in re.findall(r"Scheduler@([^:]+):", log)}
    assert len(drivers) == 1
    assert not ip_address(socket.gethostbyname(drivers.pop())).is_loopback
    agree(settings, stream.fold)
