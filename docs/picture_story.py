"""What the pictures of the page show: a month of a bank, played on a stack of its own.

Some hundred clients in four snapshots, three mailed weeks with failed and unknown clients, rejected
records, dead letters in every state, run requests, and what the watch says of all that.
"""

import itertools
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Consumer, Message
from confluent_kafka.cimpl import NewTopic

from shardpost import letters
from shardpost.embedded import daemons, stack
from shardpost.embedded.airflow import disable_schedules
from shardpost.installation import Installation
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings, load
from shardpost.watch.watch import watch_once
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.command_line import CommandLine

Say = Callable[[str], None]
PLAYED = "played.json"  # its settings, in a home on which the story was played
NEEDS_A_PERSON = 3  # exit code of what is done, and leaves something to decide

FIRST = "anna boris carla deniz elif farid greta hugo ines jonas kofi lena mateo nora omar rosa"
LAST = "abel brandt costa diaz evans fischer garcia haddad ito jensen keller lopez meyer novak park"
CLIENTS = tuple(f"{first}.{last}" for last in LAST.split() for first in FIRST.split())
STOCK = (
    ("AAPL", "NASDAQ"),
    ("MSFT", "NASDAQ"),
    ("NVDA", "NASDAQ"),
    ("IBM", "NYSE"),
    ("KO", "NYSE"),
    ("DIS", "NYSE"),
    ("VOD", "LON"),
    ("SHEL", "LON"),
)
WITHOUT_ADDRESS = ("hugo.ito", "kofi.park", "rosa.diaz")
UNSUBSCRIBED = ("elif.evans", "omar.novak")
CUT_OFF = "lena.keller"  # whose mail a run was sending when it was killed
SHOWN = "anna.abel"  # whose pages are shown
BAD_POSITIONS = (
    '{"Client": "mateo.meyer", "Ticker": "AAPL", "Amount": "1,5", "Exchange": "NASDAQ"}',
    '{"Client": "lena.lopez", "Ticker": "IBM", "Exchange": "NYSE"}',
    '{"Client": "nora.jensen", "Ticker": "KO", "Amount": 12, "Exchange": "NYSE"',
    "<position client='ines.garcia'/>",
)
ORDERS, SERVICE, READER = "orders", "order-service", "portfolio-api"
ERRORS = (
    "TimeoutError: no answer from pricing within 5 s",
    "ConnectionError: pricing:8443 refused the connection",
    "SchemaError: field 'limit' is required",
)


@dataclass(frozen=True)
class Played:
    """The stack when the story has been played: where its Airflow is, and what to look at."""

    address: str
    user: str
    password: str
    week: str
    client: str


@contextmanager
def played(say: Say, home: Path | None) -> Iterator[Played]:
    """Give a stack on which the story was played, now or, with a home, before; stop it in the end.

    The home is kept if one was given, or where something failed.
    """
    settings = _settings() if home is None else load(json.loads((home / PLAYED).read_text()))
    os.environ["AIRFLOW_HOME"] = str(settings.home / "airflow")  # else ~/airflow is made
    story = Story(settings, say)
    try:
        stack.up(settings, with_airflow=True, say=say)
        if home is None:
            story.play()
            (settings.home / PLAYED).write_text(json.dumps(settings.environ()))
        airflow = stack.status(settings)["airflow"]
        login = (airflow["address"], airflow["user"], airflow["password"])
        say(f"played: {login[0]}, user {login[1]}, password {login[2]}")
        yield Played(*login, str(story.weeks[-1]), SHOWN)
    except BaseException:
        stack.down(settings, say=say)
        say(f"not finished; kept: {settings.home}")
        raise
    stack.down(settings, say=say)
    if home is None:
        shutil.rmtree(settings.home)


def _settings() -> Settings:
    ports = {f"{name}_port": daemons.choose_port() for name in ("kafka", "smtp", "airflow")}
    home = Path(tempfile.mkdtemp(prefix="shardpost-pictures-"))
    chosen = {
        "partitions": 4,
        "retry_fatal": "Undecodable,SchemaError",
        "retry_first_delay": 1,
        "loss_warning": 90_000,  # a day is left to who is behind in share-holders
    }
    settings = Settings.model_validate({"home": home, **ports, **chosen})
    disable_schedules(settings)  # nothing but the story moves anything
    return settings


class Story:
    """Plays it, by the commands that users have and the records that producers write."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings, self._say = settings, say
        self._installation = Installation(settings)
        self._shardpost = CommandLine(settings.environ())
        self._now = datetime.now(UTC)
        self._chance = random.Random(31)  # noqa: S311 - the same story each time
        last = IsoWeek.last_ended(self._now)
        self.weeks = (last.previous.previous, last.previous, last)
        self._open: dict[str, str] = {}  # position: its client
        self._numbers = itertools.count(1001)

    def play(self) -> None:
        """Play all of it."""
        self._producer = self._installation.kafka.producer()
        self._begin()
        self._trade(40)
        self._compact()
        self._consumed(READER, self._settings.topic("share-holders"), 100)  # and no more of them
        for week in self.weeks:
            self._trade(90, week)
            self._compact()
        self._mail()
        self._fail()
        self._request()
        self._watch()
        silence = ("alerts", "silence", "few-brokers:replication.factor", "--for", "4w")
        self._run(*silence, "--why", "one broker is enough for pictures")

    def _compact(self) -> None:
        self._run("compact")
        self._watch()

    def _begin(self) -> None:
        """Before all weeks: all clients have contacts, and most of them hold something."""
        at = self.weeks[0].start - timedelta(days=5)
        for client in CLIENTS:
            address = "unknown" if client in WITHOUT_ADDRESS else f"{client}@example.com"
            name = client.replace(".", " ").title()
            form = {"Client": client, "Name": name, "Email": address}
            self._put("clients", client, form | {"Subscribed": client not in UNSUBSCRIBED}, at)
        for client in (SHOWN, CUT_OFF, *WITHOUT_ADDRESS, *UNSUBSCRIBED):
            for ticker, exchange in self._chance.sample(STOCK[:6], 3):
                self._buy(client, ticker, exchange, at)
        for client in self._chance.sample(CLIENTS, 240):
            for ticker, exchange in self._chance.sample(STOCK, self._chance.randint(1, 4)):
                self._buy(client, ticker, exchange, at)
        self._flush()

    def _trade(self, count: int, week: IsoWeek | None = None) -> None:
        """Let clients buy, sell and hand over in a week, and a producer go wrong in it."""
        begin = week.start if week else self.weeks[0].start - timedelta(days=2)
        for number in range(count):
            at = begin + timedelta(hours=number * 160 / count)
            position, client = self._chance.choice(sorted(self._open.items()))
            if number % 3 == 0 and client not in (CUT_OFF, SHOWN):
                self._sell(position, at)
            elif number % 3 == 1:
                self._buy(self._chance.choice(CLIENTS), *self._chance.choice(STOCK), at)
            else:
                own = number in (count // 2, count // 2 - 3)
                self._buy(SHOWN if own else client, *STOCK[number % 8], at)
        if week:
            self._leave(begin + timedelta(days=4))
            for number, text in enumerate(BAD_POSITIONS[: 1 + self.weeks.index(week)]):
                self._put("positions", f"bad-{week}-{number}", text, begin + timedelta(days=3))
        self._flush()

    def _leave(self, at: datetime) -> None:
        """Let the client that is shown sell its oldest position, and hand over the next one."""
        sold, moved = [one for one, client in self._open.items() if client == SHOWN][:2]
        self._sell(sold, at)
        self._put_position(moved, "boris.brandt", *STOCK[0], at + timedelta(hours=5))

    def _mail(self) -> None:
        """Mail three weeks; of the last one a killed run left a mail of which nothing is known."""
        for week in self.weeks:
            options = ("--week", str(week), "--accept-drop")
            if week == self.weeks[-1]:
                shard = partition_of(CUT_OFF, self._settings.partitions)
                others = [str(one) for one in range(self._settings.partitions) if one != shard]
                self._run("email", *options, "--shards", ",".join(others), codes=(0, 3))
                with closing(Ledger(self._installation, week, shard)) as ledger:
                    ledger.open()
                    ledger.write([LedgerEntry(CUT_OFF, DeliveryState.SENDING, "<cut@off>")])
            self._run("email", *options, codes=(0, NEEDS_A_PERSON))

    def _fail(self) -> None:
        """Let a service fail at orders: letters that are parked, retried, decided upon, waiting."""
        admin = self._installation.kafka.admin()
        admin.create_topics([NewTopic(ORDERS, 4, 1)])[ORDERS].result(30)
        ago = timedelta(days=2)
        for number in range(48):
            form = {"Order": number, "Client": self._chance.choice(CLIENTS), "Ticker": "IBM"}
            self._put(ORDERS, str(number), form, self._now - ago + timedelta(hours=number))
        self._flush()
        failed = self._consumed(SERVICE, ORDERS, 48)
        for number, message in enumerate(failed[:36]):
            self._letter(message, number, self._now - ago + timedelta(hours=number))
        self._flush()
        self._run("letters", "sweep", codes=(0, NEEDS_A_PERSON))
        for number, message in enumerate(failed[36:]):
            self._letter(message, number % 2, self._now)
        self._flush()
        parked = self._ids(ORDERS)
        redrive = ("--value", '{"Order": 2, "Ticker": "IBM", "limit": 120}', "--apply")
        self._run("letters", "redrive", "--id", parked[0], *redrive, "--why", "limit was missing")
        self._run("letters", "discard", "--id", parked[1], "--apply", "--why", "a test order")

    def _request(self) -> None:
        """Ask for runs: one at work, one that conflicts with it, one that is refused."""
        ask = ("runs", "request", "nightly/compaction", "--dag", "compact_positions")
        self._run(*ask, "--by", "treasury")
        self._run(*ask, "--by", "risk", "--conf", '{"accept_drop": true}')
        self._run("runs", "request", "ad-hoc", "--dag", "no_such_dag", "--by", "risk")
        self._run("runs", "dispatch", codes=(0, 1, NEEDS_A_PERSON))

    def _run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command of Shardpost; return what it prints."""
        self._say(f"$ shardpost {' '.join(arguments)}")
        done = self._shardpost.run(*arguments)
        for line in done.stdout.splitlines()[-3:]:
            self._say(f"  {line[:110]}")
        if done.returncode not in codes:
            tail = "\n".join(done.stderr.splitlines()[-12:])
            raise SystemExit(f"shardpost {' '.join(arguments)}: code {done.returncode}\n{tail}")
        return done.stdout

    def _watch(self) -> None:
        seen = watch_once(self._installation, datetime.now(UTC)).observations
        self._say(f"watch: {len(seen.measures)} values, {len(seen.conditions)} alerts")

    def _buy(self, client: str, ticker: str, exchange: str, at: datetime) -> None:
        self._put_position(f"P-{next(self._numbers)}", client, ticker, exchange, at)

    def _put_position(
        self, position: str, client: str, ticker: str, exchange: str, at: datetime
    ) -> None:
        form = {"PositionId": position, "Client": client, "Ticker": ticker, "Exchange": exchange}
        self._put("positions", position, form | {"Amount": self._chance.randint(1, 900)}, at)
        self._open[position] = client

    def _sell(self, position: str, at: datetime) -> None:
        self._put("positions", position, None, at)
        del self._open[position]

    def _put(self, topic: str, key: str, value: object, at: datetime) -> None:
        text = value if isinstance(value, str) or value is None else json.dumps(value)
        stamp = int(min(at, self._now).timestamp() * 1000)
        self._producer.produce(topic, key=key, value=text, timestamp=stamp)

    def _letter(self, message: Message, number: int, at: datetime) -> None:
        error = ERRORS[number % len(ERRORS)]
        made = letters.make_letter(message, error, partitions=4, failed_at=at)
        self._producer.produce(**made)

    def _flush(self) -> None:
        if left := self._producer.flush(60):
            raise SystemExit(f"{left} records were not accepted by Kafka")

    def _consumed(self, group: str, topic: str, count: int) -> list[Message]:
        """Read and commit so many records as a group does."""
        form = {"bootstrap.servers": self._settings.bootstrap, "group.id": group}
        more = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**form, **more, "isolation.level": "read_committed"})
        consumer.subscribe([topic])
        found: list[Message] = []
        while len(found) < count:
            read = consumer.consume(count - len(found), 60)
            if not read:
                raise SystemExit(f"{topic}: expected {count} records, found {len(found)}")
            found += [one for one in read if not one.error()]
            consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def _ids(self, origin: str) -> list[str]:
        """Return the ids of parked letters of a topic."""
        listed = self._shardpost.json("letters", "list", "--state", "parked", "--origin", origin)
        return [one["letter_id"] for one in listed]
