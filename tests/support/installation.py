"""One installation at work on the whole cluster: compactions, sends and sweeps, again and again.

It knows what has to hold after each piece of work, whatever was done to the cluster meanwhile: the
fold, the ledger and the letters are counted. Tables are on the object store, Spark is the
cluster's, and the driver is on a host of its own.
"""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.kafka.records import Outgoing
from shardpost.settings import Settings
from shardpost.spark.job import JobSpec
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest
from shardpost.weekly_email.model.week import IsoWeek
from tests.conftest import settings_of_its_own
from tests.support.cluster import Cluster
from tests.support.compacting import agree, starter
from tests.support.job_process import Job
from tests.support.letter_world import (
    apply_topics_with_given_times,
    await_markers,
    failed,
    live,
    original,
    put,
    seen,
)
from tests.support.mail_server import MailServer, mail_server, slow
from tests.support.network import Host
from tests.support.object_store import BUCKET
from tests.support.reference import Fold, Raw, position, produce
from tests.support.week_tables import counts_by_shard

WORK: dict[str, JobSpec] = {
    "compaction": COMPACT_POSITIONS,
    "send": WEEKLY_EMAIL,
    "sweep": SWEEP_DEAD_LETTERS,
}
# Done, and done with something to look at: unknown deliveries, a partition that was swept again.
DONE = {"compaction": {0}, "send": {0, 3}, "sweep": {0, 3}}
SHARDS, CONNECTIONS = 4, 2
TASKS_AT_ONCE = 2  # each worker has a core
CLIENTS, LETTERS = 160, 200  # of a load of 1
# Before all weeks that are mailed; letters of then are due, and those of compactions are not.
AT = datetime(2025, 9, 1, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
ELSEWHERE = "elsewhere"  # the origin of letters that no compaction takes


@dataclass
class Installation:
    """What was given to it so far; `most_unknown` is of one week, `load` how much is given at once.

    `of_jobs` are settings of its jobs that are others than those by which a test looks at them, and
    `job_environ` variables that they have beside those.
    """

    settings: Settings
    host: Host
    server: MailServer
    most_unknown: int = TASKS_AT_ONCE * CONNECTIONS
    of_jobs: dict[str, object] = field(default_factory=dict)
    job_environ: Mapping[str, str] = field(default_factory=dict)
    load: int = 1
    fold: Fold = field(default_factory=Fold)
    week: IsoWeek = field(default_factory=lambda: IsoWeek.last_ended(datetime.now(UTC)))
    letters: int = 0
    _taken: Counter[str] = field(default_factory=Counter)  # of the weeks before
    _batches: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        apply_topics_with_given_times(self.settings)
        form = b'{"Client":"%s","Name":"N","Email":"%s@x.example","Subscribed":true}'
        names = [client.encode() for client in self.clients]
        contacts = [Raw("clients", one, form % (one, one), AT_MS) for one in names]
        produce(self.settings, contacts)
        self.fold.add(starter())

    @property
    def clients(self) -> list[str]:
        """All that there are."""
        return [f"client{n}" for n in range(self.load * CLIENTS)]

    def give(self, work: str) -> None:
        """Give the next work of a kind: records, a week, letters."""
        match work:
            case "compaction":
                records = self._batch(next(self._batches))
                produce(self.settings, records)
                self.fold.add(records)
            case "send":
                self.week, self._taken = self.week.previous, self.server.taken.copy()
            case "sweep":
                given = range(self.letters, self.letters + self.load * LETTERS)
                self.letters = given.stop
                put(self.settings, [self._letter(number) for number in given])

    def _batch(self, number: int) -> list[Raw]:
        """Return positions of all clients, new or moved, one that is closed, and a bad one."""
        all_ = self.clients
        moved = ((str(n), all_[(n + number) % len(all_)]) for n in range(2 * len(all_)))
        return [
            *(position(key, client, "NASDAQ", timestamp_ms=AT_MS) for key, client in moved),
            Raw("positions", str(number).encode(), None, AT_MS),
            Raw("positions", b"bad", b"{", AT_MS),
        ]

    def _letter(self, number: int) -> Outgoing:
        record = original(number, b"k%d" % number, topic=ELSEWHERE)
        return failed(self.settings, record, when=AT)

    def job(self, work: str) -> Job:
        """Start the work that was given last, or what is left of it."""
        now = datetime.now(UTC) + timedelta(seconds=int(self.job_environ.get("CLOCK_SHIFT", 0)))
        request = EmailRequest(self.week, now=now) if work == "send" else None
        settings = self.settings.model_copy(update=self.of_jobs)
        return Job(settings, WORK[work], request, host=self.host, more=self.job_environ)

    def holds(self, work: str) -> None:
        """Hold all that was given against what is there."""
        await_markers(self.settings)
        match work:
            case "compaction":
                agree(self.settings, self.fold)
            case "send":
                self._mailed_once()
            case "sweep":
                assert Counter(seen(self.settings).values()) == {1: self.letters}
        # Those of compactions wait, or a sweep has parked them: what is undecodable is not retried.
        topics = [self.settings.topic(name) for name in ("dead-letters", "parking-lot")]
        assert sum(len(live(self.settings, topic)) for topic in topics) == self.fold.rejected

    def _mailed_once(self) -> None:
        """Hold what the server took against the ledger: nobody twice, nobody passed over."""
        holders = set(self.fold.holders())
        shards = counts_by_shard(self.settings, self.week, datetime.now(UTC))
        unknown = {client for shard in shards for client in shard.unknown_clients}
        assert len(unknown) <= self.most_unknown
        assert sum(shard.sent for shard in shards) == len(holders - unknown)
        assert sum(shard.open + shard.failed + shard.suppressed for shard in shards) == 0
        taken = self.server.taken - self._taken
        assert set(taken.values()) == {1}
        ids = {to: len(found) for to, found in self.server.message_ids.items()}
        assert ids == self.server.taken  # of each week another one
        assert holders - {to.partition("@")[0] for to in taken} <= unknown


@contextmanager
def installation(
    cluster: Cluster, home: Path, store: Mapping[str, str] | None = None, *, load: int = 1
) -> Iterator[Installation]:
    """Give one without any work yet; the mail server takes a mail in 50 ms.

    `store`: the variables of another one than the cluster's.
    """
    address = cluster.network.address
    with mail_server(slow(0.05), host=address) as server:
        own = settings_of_its_own(cluster.settings, home)
        own.folder()  # jobs expect it
        variables = (store or cluster.store.environ).items()
        more = {
            "store": {name: text for name, text in variables if name.startswith("AWS_")},
            "tables": f"s3://{BUCKET}/{uuid.uuid4().hex}",
            "spark_master": cluster.spark.url,
            "partitions": SHARDS,
            "replication_factor": 3,
            "smtp_host": address,
            "smtp_port": server.port,
            "mail_connections": CONNECTIONS,
            "mail_from": "Weekly <weekly@mails.test>",
            "unsubscribe_url": "https://mails.test/?client={client}",
            "retry_first_delay": 86_400.0,
            "retry_jitter": 0.0,
            "retry_batch": 5,
        }
        settings, host = own.model_copy(update=more), cluster.network.host()
        yield Installation(settings, host, server, load=load)
