"""The demo: plays its story on a fresh stack of its own, on free ports, and removes it.

The story: five positions, a week's e-mails, one position moves and one closes. `python -m
shardpost.embedded.demo URL` plays it on the services that the settings name, with a Mailpit at that
URL as their mail server (`make cluster-demo`).
"""

import email
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from email import policy
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fastavro
import httpx

from shardpost import logs, tables
from shardpost.embedded import daemons, stack
from shardpost.embedded.airflow import disable_schedules, task_logs
from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import Installation
from shardpost.run_requests.airflow_api import AirflowApi, AirflowRunError, log_in
from shardpost.settings import Settings, load
from shardpost.values.topic_names import TopicName
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import counted

Say = Callable[[str], None]
Received = Callable[[], Iterable[bytes]]
Record = tuple[TopicName, str, Mapping[str, Any] | None]

RUN_SECONDS = 900.0  # also where Airflow has to try again


def position_record(key: str, client: str, ticker: str, amount: int, exchange: str) -> Record:
    """Return a record of `positions`."""
    form = {"PositionId": key, "Client": client, "Ticker": ticker, "Amount": amount}
    return "positions", key, form | {"Exchange": exchange}


def contact_record(client: str) -> Record:
    """Return a record of `clients`."""
    form = {"Client": client, "Name": client.title(), "Email": f"{client}@example.com"}
    return "clients", client, form | {"Subscribed": True}


POSITIONS = (
    position_record("1", "client1", "AAPL", 100, "NASDAQ"),
    position_record("2", "client1", "VOD", 5, "LON"),
    position_record("3", "client1", "FB", 33, "NASDAQ"),
    position_record("4", "client2", "AAPL", 25, "NASDAQ"),
    position_record("5", "client3", "VOD", 33, "LON"),
)
CONTACTS = tuple(contact_record(f"client{number}") for number in (1, 2, 3))
# Where SHARDPOST_INPUTS is set, a new topic of exchanges has none.
EXCHANGES: tuple[Record, ...] = tuple(
    ("exchanges", code, {"Country": country}) for code, country in (("NASDAQ", "US"), ("LON", "GB"))
)
MOVED = position_record("3", "client3", "FB", 33, "NASDAQ")
CLOSED: Record = ("positions", "4", None)


def produce(settings: Settings, records: Iterable[Record], say: Say = lambda _line: None) -> None:
    """Write records to their topics, and print them; ShardpostError if Kafka refuses one."""
    producer = Installation(settings).kafka.producer()
    for topic, key, form in records:
        value = None if form is None else json.dumps(form)
        say(f"  {topic}: {key} {value or 'null'}")
        own = _in_avro(key, form) if topic == "positions" and settings.inputs else (key, value)
        producer.produce(settings.topic(topic), key=own[0], value=own[1])
    if left := producer.flush(settings.kafka_timeout):
        what = counted(left, "record was", "records were")
        raise ShardpostError(f"{what} not accepted by Kafka at {settings.bootstrap}")


SCHEMAS = json.loads(Path(__file__).with_name("demo_schemas.json").read_text())
DOCUMENTS = {part: {"schema": json.dumps(one)} for part, one in SCHEMAS.items()}
INPUTS = Path(__file__).with_name("demo_inputs.yml").read_text()
COLUMNS = ("id", "customer_id", "symbol", "qty", "mic")


def _in_avro(key: str, form: Mapping[str, Any] | None) -> list[bytes]:
    """Return key and value of a position as Debezium writes them in Avro, in the wire format."""
    row = form and dict(zip(COLUMNS, form.values(), strict=True))
    event = {"before": None, "after": row, "op": "c" if row else "d"}
    streams = [io.BytesIO(), io.BytesIO()]
    for number, (part, value) in enumerate([("key", {"id": key}), ("value", event)]):
        streams[number].write(b"\0\0\0\0" + bytes([number + 1]))
        fastavro.schemaless_writer(streams[number], SCHEMAS[part], value)
    return [one.getvalue() for one in streams]


class _Registry(BaseHTTPRequestHandler):
    """What of Confluent's API a run asks."""

    known: Mapping[str, Any]  # documents, by how a path ends

    def do_GET(self) -> None:
        """Answer by id, or the newest of a subject."""
        [document] = [one for end, one in self.known.items() if self.path.endswith(end)]
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def schema_registry(documents: Mapping[str, Any] = DOCUMENTS) -> Iterator[str]:
    """Run a registry of {key or value: its schema's document}, by ids from 1 on; give its URL."""
    known = {f"/schemas/ids/{number}": one for number, one in enumerate(documents.values(), 1)}
    known |= {f"-{part}/versions/latest": one for part, one in documents.items()}
    answers = type("_Answers", (_Registry,), {"known": known})
    with ThreadingHTTPServer((daemons.LOOPBACK, 0), answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{daemons.LOOPBACK}:{server.server_port}"
        server.shutdown()


def play(settings: Settings, api: AirflowApi, received: Received, now: datetime, say: Say) -> None:
    """Play the story on a stack that is up: real records, real DAG runs, real mail.

    `received` gives all mails that the mail server has.
    """
    say(f"\nfive positions{' in Avro' if settings.inputs else ''} and three clients go into Kafka:")
    produce(settings, (*(EXCHANGES if settings.inputs else ()), *CONTACTS, *POSITIONS), say)
    _run_dag(settings, api, "compact_positions", {}, say)
    _show_holders(settings, say)
    week = str(IsoWeek.of(now))
    say(f"\nthe e-mail of week {week}, early, since the week has not ended:")
    _run_dag(settings, api, "weekly_email", {"week": week, "early": True}, say)
    mails = list(received())
    say(f"\n{len(mails)} e-mails arrived:")
    for mail in mails:
        message = email.message_from_bytes(mail, policy=policy.default)
        headers = [f"{name}: {message[name]}" for name in ("From", "To", "Subject", "Message-ID")]
        body = message.get_body(("plain",))
        text = body.get_content().splitlines() if body else []
        for line in ["", *headers, "", *text]:
            say(f"  {line}")
    say("\nposition 3 moves to client3, position 4 is closed:")
    produce(settings, (MOVED, CLOSED), say)
    _run_dag(settings, api, "compact_positions", {}, say)
    _show_holders(settings, say)


def _run_dag(
    settings: Settings, api: AirflowApi, dag: str, params: dict[str, Any], say: Say
) -> None:
    dag = settings.dag_id(dag)
    run = api.trigger(dag, params)
    say(f"\nAirflow runs {dag} ({run}) …")
    try:
        api.wait(dag, run, RUN_SECONDS, lambda line: say(f"  {line}"))
    except AirflowRunError as error:
        logs = task_logs(settings) / f"dag_id={dag}" / f"run_id={run}"
        raise ShardpostError(f"{error}: see the logs of its tasks in {logs}") from None


def _show_holders(settings: Settings, say: Say) -> None:
    snapshot = tables.snapshot(settings=settings)
    holders = tables.holders(snapshot=snapshot.number, settings=settings)
    say(f"\nwho holds {settings.country} stock (snapshot {snapshot.number}):")
    for client, ids in holders.items():
        say(f"  {client}: {', '.join(ids)}")


def kept_in(home: Path) -> Received:
    """Return what reads the mails of the embedded sink."""
    return lambda: (file.read_bytes() for file in sorted((home / "mail").glob("*.eml")))


def kept_by_mailpit(url: str) -> Received:
    """Return what reads all mails of a Mailpit, the oldest first, by its REST API."""

    def received() -> Iterator[bytes]:
        with httpx.Client(base_url=url, timeout=30) as client:
            listed = client.get("/api/v1/messages", params={"limit": 1_000_000}).raise_for_status()
            for one in reversed(listed.json()["messages"]):
                yield client.get(f"/api/v1/message/{one['ID']}/raw").raise_for_status().content

    return received


# All others have their defaults: the demo uses nobody's own Kafka, mail server or topics.
_KEPT_SETTINGS = ("spark_master", "driver_memory", "kafka_timeout", "smtp_timeout", "country")


def run_demo(
    settings: Settings, *, now: datetime, keep: bool, say: Say, avro: bool = False
) -> None:
    """Start the stack, play the story, stop it; with `keep`, leave it up and say how to use it.

    With `avro`, positions are written in Avro. UsageError for both: this process is the registry.
    """
    if keep and avro:
        raise UsageError("expected --keep or --avro: the registry of --avro ends with this command")
    began = time.monotonic()
    with _home(settings, keep=keep) as home, schema_registry() if avro else nullcontext() as url:
        kept = {name: getattr(settings, name) for name in _KEPT_SETTINGS}
        chosen = {f"{name}_port": daemons.choose_port() for name in ("kafka", "smtp", "airflow")}
        # With four shards one task sends all e-mails, which is quickest for two clients.
        if url:
            kept["inputs"] = home / "inputs.yml"
            kept["inputs"].write_text(INPUTS.format(url=url))
        own = Settings.model_validate({"home": home, "partitions": 4, **chosen, **kept})
        if not keep:  # scheduled runs, due at once, would only delay the story's own
            disable_schedules(own)
        try:
            stack.up(own, with_airflow=True, say=say)
            airflow = stack.status(own)["airflow"]
            with log_in(airflow["address"], airflow["user"], airflow["password"]) as api:
                play(own, api, kept_in(home), now, say)
        except BaseException:
            stack.down(own, say=say)
            say(f"not finished; {home} is kept, with the logs of all services in {home / 'logs'}")
            raise
        say(f"\ndone after {time.monotonic() - began:.0f} s")
        if keep:
            variables = own.environ()
            names = ("HOME", "KAFKA_PORT", "SMTP_PORT", "AIRFLOW_PORT")
            exported = (f"SHARDPOST_{name}={variables[f'SHARDPOST_{name}']}" for name in names)
            login = f"user {airflow['user']}, password {airflow['password']}"
            say(f"the stack is still up: {airflow['address']}, {login}")
            say(f"to use it, or to stop it with `shardpost down`:\n  export {' '.join(exported)}")
        else:
            stack.down(own, say=say)


@contextmanager
def _home(settings: Settings, *, keep: bool) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="demo-", dir=settings.folder()))
    yield home
    if not keep:  # after a failure it is kept, with its logs
        shutil.rmtree(home)


def play_on_services(settings: Settings, mailpit: str, *, now: datetime, say: Say) -> None:
    """Play the story on the Kafka, Airflow and mail server that are set; UsageError without."""
    url, user, password = settings.airflow_url, settings.airflow_user, settings.airflow_password
    if url is None or user is None or password is None:
        raise UsageError(
            "expected SHARDPOST_AIRFLOW_URL, _USER and _PASSWORD, found only some of them"
        )
    with log_in(url, user, password) as api:
        play(settings, api, kept_by_mailpit(mailpit), now, say)


if __name__ == "__main__":
    logs.configure_logging()
    try:
        play_on_services(load(), sys.argv[1], now=datetime.now(UTC), say=print)
    except ShardpostError as error:
        sys.exit(f"shardpost: {error}")
