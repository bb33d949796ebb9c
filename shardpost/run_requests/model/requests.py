"""Run requests: what a record of `run-requests` has to be, and why it is refused otherwise."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shardpost.instants import instant_of
from shardpost.kafka.records import Record

NOT_SAID = "(not said)"
_SHOWN_CHARACTERS = 120  # of what was found, in a reason


@dataclass(frozen=True)
class Request:
    """A record that could be parsed: the run that it requests."""

    key: str
    dag: str
    conf: dict[str, Any]
    requested_by: str
    offset: int
    at: datetime


@dataclass(frozen=True)
class Refused:
    """Why a request is not run."""

    reason: str


@dataclass(frozen=True)
class RequestRules:
    """Which requests are accepted.

    `dags`: those that may be requested; `max_bytes`: of a key or value; `max_age`: an older request
    is refused; `partitions`: how many `run-requests` has.
    """

    dags: frozenset[str]
    max_bytes: int
    max_age: timedelta
    partitions: int
    now: datetime


def parse(record: Record, rules: RequestRules) -> Request | Refused:
    """Return the request of a record, or why it is refused."""
    for name, part in (("a key", record.key), ("a value", record.value)):
        if not part:
            return Refused(f"expected {name}, found {'null' if part is None else 'an empty one'}")
        if len(part) > rules.max_bytes:
            return Refused(
                f"expected {name} of at most {rules.max_bytes} bytes (SHARDPOST_REQUEST_BYTES),"
                f" found {len(part)}"
            )
    try:
        key = (record.key or b"").decode()
        form = json.loads(record.value or b"")
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()  # can be passed on
    except (ValueError, RecursionError) as error:
        return Refused(f"expected a key in UTF-8 and a value in JSON: {shown(error)}")
    return _request(key, form, record)


def _request(key: str, form: object, record: Record) -> Request | Refused:
    if not isinstance(form, dict):
        return Refused(f"expected an object, found {shown(form)}")
    dag, conf = form.get("Dag"), form.get("Conf", {})
    requested_by = form.get("RequestedBy", NOT_SAID)
    if not isinstance(dag, str) or not dag:
        return Refused(f"expected the name of a DAG as Dag, found {_found(form, 'Dag')}")
    if not isinstance(conf, dict):
        return Refused(f"expected an object as Conf, found {shown(conf)}")
    if not isinstance(requested_by, str):
        return Refused(f"expected a text as RequestedBy, found {shown(requested_by)}")
    at = instant_of(record.timestamp)
    return Request(key, dag, conf, requested_by or NOT_SAID, record.offset, at)


def _found(form: dict[str, Any], field: str) -> str:
    return shown(form[field]) if field in form else "none"


def shown(found: object) -> str:
    """Return what was found, for a reason: as JSON, shortened."""
    text = str(found) if isinstance(found, Exception) else json.dumps(found)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
