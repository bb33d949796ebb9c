"""The cluster of these tests is what they take it for: parts that are killed, halted, cut off."""

import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.support.cluster import Cluster
from tests.support.job_process import wait_for
from tests.support.network import Host, network

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
while True:
    server.accept()[0].sendall(b"here")
"""


def answers(host: Host, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host.address, port), 0.5) as connection:
        return connection.recv(4) == b"here"
    return False


def test_a_host_that_is_cut_off_answers_nobody_until_the_cut_ends() -> None:
    with network() as net:
        host, other = net.host(), net.host()
        assert other.address != host.address or net.bridge is None
        command = host.inside([sys.executable, "-c", ECHO, host.address])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
            assert echo.stdout
            port = int(echo.stdout.readline())
            try:
                assert answers(host, port)
                with host.cut_off():
                    assert not answers(host, port)
                wait_for(lambda: answers(host, port), "the end of the cut")
            finally:
                echo.kill()


@pytest.mark.parametrize("how", ["killed", "paused", "cut_off"])
def test_two_brokers_go_on_without_the_third_and_it_comes_back(cluster: Cluster, how: str) -> None:
    with getattr(cluster.brokers[3], how)():
        cluster.kafka.await_brokers(2)
    cluster.kafka.await_brokers(3)
