"""What a schema registry answers, and what only looks as if it did."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from shardpost.errors import ShardpostError
from shardpost.kafka.schema_registry import Schema, SchemaRegistry

URL = "http://registry.test/api"
NO_SCHEMA = httpx.Response(404, json={"error_code": 40403, "message": "Schema not found"})


Ask = Callable[..., tuple[SchemaRegistry, list[str]]]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Give what makes a client, and the paths that it asks for."""

    def make(
        answer: Callable[[str], httpx.Response], seconds: float = 5
    ) -> tuple[SchemaRegistry, list[str]]:
        asked: list[str] = []

        def handle(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.raw_path.decode().removeprefix("/api/"))
            assert request.headers["authorization"] == "Basic bWU6aHVzaA=="
            return answer(asked[-1])

        def request(method: str, url: str, *, json: Any, **given: Any) -> httpx.Response:
            transport = httpx.MockTransport(handle)
            with httpx.Client(transport=transport, **given) as client:
                return client.request(method, url, json=json)

        monkeypatch.setattr(httpx, "request", request)
        return SchemaRegistry(URL, "a b", seconds, ("me", "hush")), asked

    return make


def answers(found: dict[str, Any]) -> Callable[[str], httpx.Response]:
    return lambda path: httpx.Response(200, json=found[path]) if path in found else NO_SCHEMA


def test_a_schema_is_asked_for_once_with_all_that_it_refers_to(registry: Ask) -> None:
    money = {"name": "Money", "subject": "com/money", "version": 2}
    found = {
        "schemas/ids/7": {"schema": "position", "references": [money]},
        "subjects/com%2Fmoney/versions/2": {
            "schema": "money",
            "references": [{"name": "Unit", "subject": "unit", "version": 1}, money],
        },
        "subjects/unit/versions/1": {"schema": "unit"},
    }
    client, asked = registry(answers(found))
    expected = Schema("AVRO", "position", (("Unit", "unit"), ("Money", "money")))
    assert (client.schema("ids/7"), client.schema("ids/7")) == (expected, expected)
    assert sorted(asked) == sorted(found)


def test_the_newest_schema_of_a_subject_has_a_kind(registry: Ask) -> None:
    path = "subjects/a%20b-value/versions/latest"
    client, asked = registry(answers({path: {"schema": "{}", "schemaType": "JSON", "id": 3}}))
    assert client.newest("value") == Schema("JSON", "{}")
    assert client.newest("key") is None
    assert asked == [path, path.replace("value", "key")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            httpx.Response(404, html="<html>no such page"),
            "found 404 <html>no such page at schemas/ids/7",
        ),
        (httpx.Response(404, json={"error_code": 404}), "correct its `url`"),
        (httpx.Response(200, html="<html>sign in"), "expected Confluent's API, found 200"),
        (httpx.Response(200, json="a text"), "expected Confluent's API, found 200"),
        (httpx.Response(401, json={"error_code": 401}), "or SHARDPOST_REGISTRY_PASSWORD"),
        (httpx.Response(403), "its `user`, or"),
    ],
)
def test_no_other_server_says_that_a_schema_is_unknown(
    registry: Ask, answer: httpx.Response, said: str
) -> None:
    client, _ = registry(lambda _: answer)
    with pytest.raises(
        ShardpostError, match=r"schema registry http://registry\.test/api: "
    ) as error:
        client.schema("ids/7")
    assert said in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_a_subject_does_not_take_is_refused_with_its_cure(
    registry: Ask, status: int
) -> None:
    body = {"error_code": status, "message": "incompatible with an earlier schema"}
    client, _ = registry(lambda _: httpx.Response(status, json=body))
    found = rf"found {status} .*incompatible.* at subjects/a%20b-value/versions"
    cure = "if its readers can take it, correct the subject's compatibility or mode"
    with pytest.raises(ShardpostError, match=f"{found}: {cure}"):
        client.register("value", Schema("JSON", "{}"))


def test_what_is_registered_is_asked_for_anew_each_time(registry: Ask) -> None:
    ids = iter((7, 8))
    client, asked = registry(lambda _: httpx.Response(200, json={"id": next(ids)}))
    assert [client.register("key", Schema("JSON", "{}")) for _ in range(2)] == [7, 8]
    assert asked == ["subjects/a%20b-key/versions"] * 2


def test_a_registry_that_is_away_for_a_moment_is_asked_again(registry: Ask) -> None:
    left = iter([httpx.Response(503), httpx.Response(429)])
    client, asked = registry(lambda _: next(left, httpx.Response(200, json={"schema": "{}"})))
    assert client.schema("ids/7") == Schema("AVRO", "{}")
    assert len(asked) == 3


def test_a_registry_that_stays_away_ends_the_run_after_its_bound(registry: Ask) -> None:
    def refuse(_: str) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    expected = r"within 0\.3 s \(SHARDPOST_KAFKA_TIMEOUT\), found .*Connection refused.*: start it"
    for answer in (refuse, lambda _: httpx.Response(500, text="Connection refused")):
        client, _ = registry(answer, seconds=0.3)
        with pytest.raises(ShardpostError, match=expected):
            client.schema("ids/7")


def test_a_schema_that_a_registry_answers_with_an_error_may_be_refused_by_it(registry: Ask) -> None:
    client, _ = registry(lambda _: httpx.Response(500, text="RuleViolation"), seconds=0.3)
    with pytest.raises(ShardpostError, match=r"found 500 RuleViolation .*: start it, .* its log"):
        client.register("value", Schema("JSON", "{}"))


def test_a_file_of_certificates_that_is_not_there_is_named() -> None:
    client = SchemaRegistry("https://registry.test", "positions", 1, ca="/no/ca.pem")
    with pytest.raises(ShardpostError, match=r"its `ca` /no/ca\.pem cannot be read"):
        client.schema("ids/7")
