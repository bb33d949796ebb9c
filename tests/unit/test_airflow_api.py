"""What Airflow's REST API answers, and what only looks as if it did."""

from collections.abc import Callable

import httpx
import pytest

from shardpost.errors import ShardpostError
from shardpost.run_requests.airflow_api import AirflowApi

NO_RUN = {"detail": "The DagRun with dag_id: `d` and run_id: `r` was not found"}


def api(*answers: httpx.Response) -> AirflowApi:
    left = iter(answers)
    transport = httpx.MockTransport(lambda _: next(left))
    return AirflowApi(httpx.Client(base_url="http://airflow.test", transport=transport))


DAG = httpx.Response(200, json={"is_stale": False, "is_paused": False})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
@pytest.mark.parametrize(
    "call",
    [
        lambda answer: api(answer).run("d", "r"),
        lambda answer: api(answer).start("d", "r", {}, "note"),
        lambda answer: api(DAG, answer).start("d", "r", {}, "note"),
    ],
)
def test_an_error_that_is_not_airflows_says_nothing_about_runs(
    call: Callable[[httpx.Response], object], status: int
) -> None:
    html = httpx.Response(status, html="<html>no such host\n</html>")
    others = [html, httpx.Response(status, json={"error": "no"}), httpx.Response(status)]
    for answer in others:
        with pytest.raises(ShardpostError) as refused:
            call(answer)
        said = str(refused.value)
        assert "http://airflow.test/api/v2/dags/d" in said
        assert f"expected an answer from Airflow's REST API, found {status}" in said


def test_a_path_that_another_server_does_not_have_is_no_deleted_run() -> None:
    with pytest.raises(ShardpostError, match="another server answers there"):
        api(httpx.Response(404, json={"detail": "Not Found"})).run("d", "r")


def test_airflows_own_errors_say_what_they_said() -> None:
    assert api(httpx.Response(404, json=NO_RUN)).run("d", "r") is None
    absent = httpx.Response(404, json={"detail": "Dag with id: d was not found"})
    assert api(absent).start("d", "r", {}, "note") == "Airflow has no DAG d"
    invalid = httpx.Response(422, json={"detail": [{"msg": "no such param"}]})
    reason = api(DAG, invalid).start("d", "r", {}, "note")
    assert reason is not None
    assert "no such param" in reason
    taken = httpx.Response(409, json={"detail": {"reason": "Unique constraint violation"}})
    assert api(DAG, taken).start("d", "r", {}, "note") is None
    with pytest.raises(ShardpostError, match="403 Forbidden"):
        api(httpx.Response(403, json={"detail": "Forbidden"})).run("d", "r")
