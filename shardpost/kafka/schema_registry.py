"""A schema registry with Confluent's API: schemas by their ids, and the newest one of a subject.

A client remembers what it was answered. A run opens its own: a registry that was set up anew may
have given an id to another schema. `confluent_kafka.schema_registry` would need packages beside
Airflow's, and bounds each try, not all of them together.
"""

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from shardpost.errors import ShardpostError, single_line

OK, NOT_FOUND, TOO_MANY, SERVER_ERROR = 200, 404, 429, 500
REFUSED = (409, 422)  # an incompatible schema, an invalid one
# Confluent's codes for a subject, a version, a schema that is not there.
UNKNOWN = (40401, 40402, 40403)
PAUSE, MAX_SHOWN = 0.2, 200


class Schema(NamedTuple):
    """A schema: its kind (AVRO, JSON, PROTOBUF), its text, and what it refers to, in order.

    That is a text each, behind the name by which it is referred to.
    """

    kind: str
    text: str
    referenced: tuple[tuple[str, str], ...] = ()

    @property
    def texts(self) -> list[str]:
        """All texts, its own last."""
        return [*dict.fromkeys(text for _, text in self.referenced), self.text]


@dataclass(frozen=True)
class SchemaRegistry:
    """A client for the schemas of a topic; `seconds` bounds a question with all its tries.

    ShardpostError if the registry does not answer in time, or refuses the login.
    """

    url: str
    topic: str
    seconds: float
    login: tuple[str, str] | None = field(default=None, repr=False)
    ca: str | None = None
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def schema(self, place: str) -> Schema | None:
        """Return the schema at `ids/7` or `guids/…`; None if the registry does not know it."""
        return self._whole(self._get(f"schemas/{place}"))

    def newest(self, part: str) -> Schema | None:
        """Return the newest schema of the topic's keys, or values; None if there is none."""
        return self._whole(self._get(_version(f"{self.topic}-{part}", "latest")))

    def register(self, part: str, schema: Schema) -> int:
        """Have a schema be the newest of the topic's keys, or values, if it is not; return its id.

        ShardpostError also if the registry refuses it, as one incompatible with the subject's own.
        """
        body = {"schemaType": schema.kind, "schema": schema.text}
        return int(self._answer(_version(f"{self.topic}-{part}"), body)["id"])

    def _whole(self, found: Any) -> Schema | None:
        if found is None:
            return None
        referenced = dict.fromkeys(self._referenced(found, set()))
        return Schema(found.get("schemaType") or "AVRO", found["schema"], (*referenced,))

    def _referenced(self, found: Any, seen: set[str]) -> Iterator[tuple[str, str]]:
        for one in found.get("references") or ():
            path = _version(one["subject"], one["version"])
            if path not in seen and (other := self._get(path)) is not None:
                seen.add(path)
                yield from self._referenced(other, seen)
                yield one.get("name", ""), other["schema"]

    @cached_property
    def _verify(self) -> ssl.SSLContext | bool:
        try:
            return self.url.startswith("https:") and ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise self._error(f"its `ca` {self.ca} cannot be read: {error}") from None

    def _get(self, path: str) -> Any:
        """Return the document at a path; None if the registry has nothing there."""
        if path not in self._known:
            self._known[path] = self._answer(path)
        return self._known[path]

    def _answer(self, path: str, body: dict[str, str] | None = None) -> Any:
        """Return what the registry answers to a GET, or to a POST of a body."""
        until, url = time.monotonic() + self.seconds, f"{self.url.rstrip('/')}/{path}"
        ask = partial(httpx.request, "GET" if body is None else "POST", url, json=body)
        while True:
            left = max(PAUSE, until - time.monotonic())
            try:
                response = ask(auth=self.login, verify=self._verify, timeout=left)
                status, text = response.status_code, response.text
            except httpx.HTTPError as error:
                status, text = SERVER_ERROR, str(error) or type(error).__name__
            found = f"found {status} {single_line(text, MAX_SHOWN)} at {path}"
            if status < SERVER_ERROR and status != TOO_MANY:
                return self._document(status, text, found)
            if time.monotonic() + PAUSE >= until:
                within = f"expected an answer within {self.seconds:g} s (SHARDPOST_KAFKA_TIMEOUT)"
                other = "; if it is up, its log says why it takes no such schema" if body else ""
                raise self._error(f"{within}, {found}: start it, or correct `registry`{other}")
            time.sleep(PAUSE)

    def _document(self, status: int, text: str, found: str) -> Any:
        document = None
        with suppress(ValueError, RecursionError):
            document = json.loads(text)
        if status == OK and isinstance(document, dict | list):
            return document
        code = document.get("error_code") if isinstance(document, dict) else None
        if status == NOT_FOUND and code in UNKNOWN:
            return None
        if status in REFUSED and code:
            cure = "if its readers can take it, correct the subject's compatibility or mode"
            raise self._error(f"expected the schema to be taken, {found}: {cure}")
        cure = "correct its `url`, its `user`, or SHARDPOST_REGISTRY_PASSWORD"
        raise self._error(f"expected Confluent's API, {found}: {cure}")

    def _error(self, why: str) -> ShardpostError:
        return ShardpostError(f"SHARDPOST_INPUTS: schema registry {self.url}: {why}")


def _version(subject: str, *version: object) -> str:
    return "/".join(["subjects", quote(subject, safe=""), "versions", *map(str, version)])
