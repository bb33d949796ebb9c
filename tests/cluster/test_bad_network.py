"""A network with long ways, narrow ways or resets, to Kafka, the mail server and the store."""

from dataclasses import replace
from pathlib import Path

import pytest

from shardpost.embedded.daemons import choose_port
from tests.support.cluster import Cluster
from tests.support.installation import DONE, WORK, installation
from tests.support.links import Weather, links
from tests.support.object_store import object_store

WEATHERS = {
    "200 ms a round trip": Weather(delay=0.1),
    "64 kB a second": Weather(rate=64_000),
    "1 % of what is sent answered by a reset": Weather(resets=0.01),
}
TRIES = 5  # of work that a reset may stop


@pytest.mark.parametrize("how", WEATHERS)
def test_over_a_bad_network_compaction_send_and_sweep_end_right(
    cluster: Cluster, tmp_path: Path, how: str
) -> None:
    weather, address = replace(WEATHERS[how]), cluster.network.address
    with (
        object_store(tmp_path / "store") as store,
        installation(cluster, tmp_path / "home", store.environ) as at_work,
    ):
        to_store, to_mail = (address, choose_port()), (address, choose_port())
        places = {to_store: ("127.0.0.1", store.port), to_mail: (address, at_work.server.port)}
        endpoint = f"http://{address}:{to_store[1]}"
        at_work.of_jobs = {
            "bootstrap_servers": ",".join(f"{host}:{port}" for host, port in cluster.kafka.links),
            "smtp_port": to_mail[1],
            "store": store.environ | {"AWS_ENDPOINT_URL": endpoint},
        }
        with links(places | dict(cluster.kafka.links), weather):
            for work in WORK:
                at_work.give(work)
                for _ in range(TRIES):
                    job = at_work.job(work)
                    code = job.wait(600)
                    if code in DONE[work]:
                        break
                    assert weather.resets, job.log.read_text()
                    job.why_failed()
                at_work.most_unknown = weather.resets_done[places[to_mail]]
                assert code in DONE[work]
                at_work.holds(work)
