"""Inputs that are no plain JSON: what comes of them is what would come of plain records."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, product
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, strategies
from hypothesis import settings as example_settings
from pyspark.sql import Row, SparkSession

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders import compaction, folding
from shardpost.holders.model.input_mapping import InputMapping
from shardpost.holders.model.view_tables import CLIENTS, POSITION_EVENTS
from shardpost.holders.model.view_tables import INPUTS as TABLES
from shardpost.holders.spark import fold, input_update
from shardpost.holders.spark.compaction_run import InputTopic
from shardpost.holders.spark.held_positions import contact_languages, contact_of
from shardpost.holders.spark.history import decode
from shardpost.kafka.records import partition_of
from shardpost.rebuilds import registry
from shardpost.settings import Settings
from shardpost.values.topic_names import TopicName
from tests.support.at_step import maybe_killing
from tests.support.compacting import agree, held, run
from tests.support.decoding import Records, raw_rows
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.letter_world import committed, header
from tests.support.rebuilding import rollback, start, swap
from tests.support.record_streams import RECORDS, Again, Growth, Stream, placed
from tests.support.reference import Raw, Retry, closed, position, produce, produce_retry, published
from tests.support.run_sizes import set_thresholds

RENAMED = {"Client": "customer.id", "Ticker": "`the ticker`", "Amount": "qty", "Exchange": "mic"}
# Texts of JSON values of each kind, good and bad; None is left out.
NUMBERS = (
    *("1", "-0", "0", "1.50", "100.0", "-1e400", "1E-7", "9" * 60, "0." + "1" * 50, "9" * 18),
    *("9" * 19, "9" * 38, "-" + "9" * 39, '"5"', '"NaN"', "true", "null", "{}", "[1]", None),
)
TEXTS = (
    *('"a"', '"5"', '""', '" "', '"1.5"', '"true"', "5", "1.5", "true", "null", '{"a":1}', None),
    *(r'"\ud83d\ude00"', r'"\ud800"', r'"a\\ud800"', '"]}"', '"a\\nb"', '"größe"', "[]"),
)
FLAGS = ("true", "false", "null", '"true"', "0", None)


def positions_of(client: str | None, ticker: str | None, amount: str | None) -> dict[str, Any]:
    return {"Client": client, "Ticker": ticker, "Amount": amount, "Exchange": '"NASDAQ"'}


POSITIONS = [
    *(positions_of('"c"', '"T"', one) for one in NUMBERS),
    *(positions_of(one, '"T"', "1.5") for one in TEXTS),
    *(positions_of('"c"', one, "2") for one in TEXTS),
]


def plain(form: dict[str, str | None]) -> bytes:
    """Return JSON with those texts as values."""
    fields = (f'"{name}":{text}' for name, text in form.items() if text is not None)
    return f"{{{','.join(fields)}}}".encode()


def renamed(form: dict[str, str | None]) -> bytes:
    """Return the same with other names, and more around it."""
    names = {"Ticker": "the ticker", "Amount": "qty", "Exchange": "mic"}
    inner = plain({"qty": "7", "more": "[1.5]", "id": form["Client"]}).decode()
    own = {names[name]: text for name, text in form.items() if name in names}
    return plain({"customer": inner, "Client": '"another"', **own})


def connect(value: bytes) -> bytes:
    """Return what Connect's JSON converter writes."""
    schema = b'{"type":"struct","optional":false,"fields":[{"type":"string","field":"x"}]}'
    return b'{"schema":' + schema + b',"payload":' + value + b"}"


def debezium(value: bytes, op: bytes = b"c") -> bytes:
    source = b'{"version":"3.0","snapshot":"first","ts_ms":1.5}'
    return b'{"before":null,"after":%s,"source":%s,"op":"%s"}' % (value, source, op)


FORMS: dict[str, tuple[dict[str, Any], Callable[[bytes], bytes]]] = {
    "bare": ({}, lambda value: value),
    "connect": ({"envelope": "connect"}, connect),
    "debezium": ({"envelope": "debezium"}, debezium),
    "debezium in connect": ({"envelope": "debezium"}, lambda value: connect(debezium(value))),
}


def source_of(name: TopicName, **given: Any) -> InputTopic:
    return InputTopic(name, name, TABLES[name], InputMapping(**given) if given else None)


def decoded(spark: SparkSession, source: InputTopic, records: Records) -> list[Row]:
    return decode(source, raw_rows(spark, records)).orderBy("offset").collect()


FIELDS = ("client", "ticker", "amount", "exchange")


@pytest.mark.parametrize("form", FORMS)
def test_a_path_gives_what_the_plain_field_would_give(spark: SparkSession, form: str) -> None:
    more, wrapped = FORMS[form]
    own = source_of("positions", key_format="text", fields=RENAMED, **more)
    mapped = [(b"k", wrapped(renamed(one))) for one in POSITIONS]
    found = decoded(spark, own, mapped)
    wanted = decoded(spark, source_of("positions"), [(b"k", plain(one)) for one in POSITIONS])
    for one, is_, should, (_, value) in zip(POSITIONS, found, wanted, mapped, strict=True):
        assert [is_[name] for name in ("key", "kind", *FIELDS)] == [
            should[name] for name in ("key", "kind", *FIELDS)
        ], one
        assert (is_["reason"] or "").startswith(should["reason"] or ""), one
        assert bytes(is_["value"]) == value
    assert {one["kind"] for one in found} == {"upsert", "rejected"}
    assert found[13]["reason"] == 'expected a number for Amount, found "5" (qty)'


def test_what_is_optional_may_be_missing_at_its_path_too(spark: SparkSession) -> None:
    forms = [
        {"Name": name, "Email": None, "Subscribed": flag}
        for name, flag in chain(product(TEXTS, ["true"]), product(['"n"'], FLAGS))
    ]
    own = source_of("clients", fields={"Name": "p.n", "Subscribed": "p.s"})
    values = [plain({"p": plain({"n": f["Name"], "s": f["Subscribed"]}).decode()}) for f in forms]
    found = decoded(spark, own, [(b"k", value) for value in values])
    wanted = decoded(spark, source_of("clients"), [(b"k", plain(one)) for one in forms])
    names = ("kind", "name", "email", "subscribed")
    assert [[one[n] for n in names] for one in found] == [[one[n] for n in names] for one in wanted]


BROKEN = [
    *(
        b"",
        b" ",
        b"{",
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"{} {}",
        b"\xff",
        b"{'a':1}",
        b"{}]}",
        b"{},{}",
    ),
    *(b'{"qty":NaN}', b'{"qty":01}', b"[" * 2000, b'{"a":' * 1100 + b"1" + b"}" * 1100),
]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_object_is_rejected_whole(spark: SparkSession, form: str) -> None:
    more, wrapped = FORMS[form]
    own = source_of("exchanges", key_format="text", fields={"Country": "land"}, **more)
    values = [*BROKEN, *map(wrapped, BROKEN)]
    found = decoded(spark, own, [(b"LON", value) for value in values])
    for one, value in zip(found, values, strict=True):
        is_tombstone = form == "connect" and value == connect(b"null")
        assert one["kind"] == ("tombstone" if is_tombstone else "rejected"), value
        assert bytes(one["value"]) == value
        assert one["key"] == "LON"
    assert found[3]["reason"].startswith("expected one JSON object")


def test_of_a_field_that_is_given_twice_the_last_counts(spark: SparkSession) -> None:
    own = source_of("exchanges", fields={"Country": "a.b"})
    value = b'{"a":{"b":"GB"},"a":{"b":"FR","b":"US"}}'
    assert decoded(spark, own, [(b"k", value)])[0]["country"] == "US"


EXPRESSIONS = {
    "Client": "concat_ws('-', customer.id, key)",
    "Ticker": "array_join(transform(split(t, ','), x -> x || `the mic`.`of it`), ';') -- joined",
    "Amount": "cast(qty AS decimal(38,9))",
    "Exchange": "upper(`the mic`.`of it`)",
}


def test_expressions_see_the_text_of_each_field_as_it_was_written(spark: SparkSession) -> None:
    own = source_of("positions", fields=EXPRESSIONS)
    number = "12345678901234567.123456789"
    value = b'{"customer":{"id":1.50},"t":"a,b","the mic":{"of it":"x"},"qty":"%s"}'
    [row] = decoded(spark, own, [(b"k", value % number.encode())])
    assert [row[name] for name in FIELDS] == ["1.50-k", "ax;bx", number, "X"]


def test_an_expression_that_fails_rejects_its_record_alone(spark: SparkSession) -> None:
    own = source_of("positions", fields=EXPRESSIONS, where="cast(qty AS decimal(38,9)) > 1")
    values = [
        b'{"customer":{"id":"c"},"t":"a","the mic":{"of it":"m"},"qty":%s}' % one
        for one in (b'"x"', b"2", b"1")
    ]
    found = decoded(spark, own, [(b"k", value) for value in values])
    assert [one["kind"] for one in found] == ["rejected", "upsert", "skipped"]
    assert found[0]["reason"] == (
        "expected a value for where, found an error (cast(qty AS decimal(38,9)) > 1)"
    )


def test_no_digit_of_a_number_is_lost_in_an_expression(spark: SparkSession) -> None:
    numbers = [one for one in NUMBERS if one and one[-1].isdigit()]
    own = source_of("positions", fields={"Ticker": "t || ''", "Amount": "coalesce(qty, t)"})
    form = '{"Client":"c","t":%s,"qty":%s,"Exchange":"x"}'
    found = decoded(spark, own, [(b"k", (form % (one, one)).encode()) for one in numbers])
    same = [(b"k", plain(positions_of('"c"', '"T"', one))) for one in numbers]
    should = decoded(spark, source_of("positions"), same)
    assert [(one["amount"], one["kind"]) for one in found] == [
        (one["amount"], "upsert") for one in should
    ]
    tickers = dict(zip(numbers, (one["ticker"] for one in found), strict=True))
    assert tickers.pop("-0") in {"0", "-0"}
    assert tickers == {one: one for one in tickers}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("upr(mic)", "positions.fields.Exchange: .*upr"),
        ("upper(mic) of", "positions.fields.Exchange: .PARSE_SYNTAX_ERROR"),
        ("length(mic)", "Exchange: expected string, found int: cast it"),
        ("max(mic)", "Exchange: .MISSING_GROUP_BY"),
        ("max('x')", "positions.fields.Exchange: "),
        ("first_value(mic) OVER (ORDER BY mic)", "positions.fields.Exchange: "),
        ("explode(array(mic))", "positions.fields.Exchange: "),
        ("cast(rand() AS string)", "expected what follows from one record"),
        ("cast(now() AS string)", "expected what follows from one record"),
        ("(SELECT 'a')", "Exchange: .UNSUPPORTED_SUBQUERY_EXPRESSION"),
        ("mic.* ", "positions.fields.Exchange"),
    ],
)
def test_an_expression_that_cannot_be_is_refused(
    spark: SparkSession, source: str, said: str
) -> None:
    own = source_of("positions", fields={"Exchange": source})
    with pytest.raises(UsageError, match=f"SHARDPOST_INPUTS: .*{said}"):
        decode(own, raw_rows(spark, [(b"k", b"{}")]))


@pytest.mark.parametrize("source", ["cast(qty AS double)", "qty * 2.0e0"])
def test_a_number_that_may_have_lost_digits_is_refused(spark: SparkSession, source: str) -> None:
    own = source_of("positions", fields={"Amount": source})
    with pytest.raises(UsageError, match=r"Amount: expected .*found double: cast it"):
        decode(own, raw_rows(spark, [(b"k", b"{}")]))


KEYS: list[tuple[dict[str, Any], bytes | None, str | None]] = [
    ({"key_format": "json"}, b'"a"', "a"),
    ({"key_format": "json"}, b"7", "7"),
    ({"key_format": "json"}, b"7.50", "7.50"),
    ({"key_format": "json"}, b"9" * 40, "9" * 40),
    ({"key_format": "json"}, b'{"id": 7}', "7"),
    ({"key_format": "json"}, b'{"b": 7.0, "a": "x"}', '{"a":"x","b":"7.0"}'),
    ({"key_format": "json"}, b"null", None),
    ({"key_format": "json"}, b"{}", None),
    ({"key_format": "json"}, b'{"id": null}', None),
    ({"key_format": "json"}, b"{", None),
    ({"key_format": "json"}, b"7]", None),
    ({"key_format": "json"}, b"\xff", None),
    ({"key_format": "json"}, None, None),
    ({"key_format": "json", "key": "key.id"}, b'{"id": "a", "n": 1}', "a"),
    ({"key_format": "json", "key": "key.id"}, b'{"n": 1}', None),
    ({"key_format": "json", "key": "concat(key.a, '/', value.land)"}, b'{"a": "x"}', "x/US"),
    ({"key": "upper(key)"}, b"a", "A"),
    ({"key": "land"}, b"anything", "US"),
    ({"key": "key"}, b"\xff", None),
    ({"key": "cast(key AS int)"}, b"x", None),
    ({"envelope": "connect"}, b'{"schema":{"type":"int32"},"payload":7}', "7"),
    ({"envelope": "connect"}, b'{"schema":null,"payload":{"id":"a"}}', "a"),
    ({"envelope": "debezium"}, b'{"id":7}', "7"),
    ({"envelope": "debezium"}, b'{"schema":{},"payload":{"id":7}}', "7"),
]


@pytest.mark.parametrize(
    ("given", "keys"),
    [(given, [one[1:] for one in alike]) for given, alike in groupby(KEYS, itemgetter(0))],
)
def test_the_id_is_text_by_one_rule_and_the_bytes_of_a_key_are_kept(
    spark: SparkSession, given: dict[str, Any], keys: list[tuple[bytes | None, str | None]]
) -> None:
    wraps: dict[str, Callable[[bytes], bytes]] = {"connect": connect, "debezium": debezium}
    value = wraps.get(given.get("envelope", ""), bytes)(b'{"land":"US"}')
    own = source_of("exchanges", fields={"Country": "land"}, **given)
    found = decoded(spark, own, [(raw, value) for raw, _ in keys])
    for row, (raw, key) in zip(found, keys, strict=True):
        assert (row["key"], row["kind"]) == (key, "rejected" if key is None else "upsert")
        is_same = raw is not None and key is not None and raw == key.encode()
        assert row["raw_key"] == (None if is_same else raw)


def test_deletes_and_snapshots_of_debezium(spark: SparkSession) -> None:
    own = source_of("exchanges", envelope="debezium", fields={"Country": "after.land"})
    row, none = b'{"land":"US"}', b"null"
    values = [
        *(debezium(row, op) for op in (b"c", b"r", b"u", b"x", b"t")),
        b'{"before":%s,"after":null,"op":"d"}' % row,
        b'{"before":null,"after":null,"op":"d"}',
        *(None, debezium(none), b'{"after":%s}' % row, b'{"after":5,"op":"c"}'),
    ]
    found = decoded(spark, own, [(b'{"code":"LON"}', value) for value in values])
    assert [one["kind"] for one in found] == [
        *["upsert"] * 3,
        *["rejected"] * 2,
        *["tombstone"] * 3,
        *["rejected"] * 3,
    ]
    assert {one["key"] for one in found} == {"LON"}
    # The key of a deleted row is in the row before.
    by_row = replace(
        own, mapping=InputMapping(envelope="debezium", key="value.land", key_format="text")
    )
    [gone] = decoded(spark, by_row, [(b"k", values[5])])
    assert (gone["key"], gone["kind"]) == ("US", "tombstone")


def test_where_passes_over_what_is_not_ours_and_rejects_what_it_cannot_tell(
    spark: SparkSession,
) -> None:
    own = source_of("exchanges", fields={"Country": "land"}, where="book = 'OWN'")
    values = [b'{"land":"US","book":%s}' % one for one in (b'"OWN"', b'"OTHER"', b"null")]
    found = decoded(
        spark, own, [(b"k", value) for value in [*values, None, b'{"land":5,"book":"x"}']]
    )
    kinds = ["upsert", "skipped", "rejected", "tombstone", "skipped"]
    assert [one["kind"] for one in found] == kinds
    assert found[2]["reason"] == "expected true or false for where, found nothing (book = 'OWN')"


def written(form: dict[str, Any] | None, key: str, mode: str) -> tuple[bytes, bytes | None]:
    """Return key and value of a record of a mode, as its producer writes it."""
    if mode == "bare":
        return key.encode(), None if form is None else json.dumps(form).encode()
    own_key = json.dumps({"id": key}).encode()
    if mode == "connect":
        return connect(own_key), None if form is None else connect(json.dumps(form).encode())
    if form is None and len(key) % 2:
        return own_key, b'{"before":{"customer":{}},"after":null,"op":"d"}'
    return own_key, None if form is None else debezium(json.dumps(form).encode())


@dataclass
class MappedStream(Stream):
    """A stream whose positions are written in another form; its fold is that of the plain ones."""

    mode: str = "bare"
    _written: dict[int, Raw] = field(default_factory=dict)

    def _as_written(self, record: Raw, value: bytes | None) -> Raw:
        if record.topic != "positions":
            return replace(record, value=value)
        try:
            plain_form = None if value is None else json.loads(value)
        except ValueError:
            plain_form = 0
        form: Any = None
        if isinstance(plain_form, dict):
            names = {"Ticker": "the ticker", "Amount": "qty", "Exchange": "mic"}
            form = {names[name]: one for name, one in plain_form.items() if name in names}
            form["customer"] = {"id": plain_form["Client"]} if "Client" in plain_form else {}
        key, made = written(form, (record.key or b"").decode(), self.mode)
        is_broken = value is not None and form is None
        made_record = replace(record, key=key, value=value if is_broken else made)
        return placed(made_record, self._partitions)

    def send(self, records: Iterable[Raw | Again | Growth]) -> None:
        for one in records:
            if isinstance(one, Growth):
                super().send([one])
            elif isinstance(one, Again):
                if not self._sent:
                    continue
                origin = self._sent[-1 - one.back % len(self._sent)]
                sent = self._written[id(origin)]
                value = self._as_written(origin, one.value).value
                produce_retry(self.settings, Retry(sent, value), self._places[id(sent)])
                self.fold.add([Retry(origin, one.value)])
            else:
                made = self._as_written(one, one.value)
                self._places |= produce(self.settings, [made])
                self._written[id(one)] = made
                self._sent.append(one)
                self.fold.add([one])


# What a run of records of positions comes to, up to its end.
STEPS = [
    *("read", "positions history", "positions table", "share_holders", "commit"),
    *("positions fold", "share_holders fold", "offsets", "publish", "letters"),
]
KILLS = strategies.lists(strategies.sampled_from(STEPS), min_size=3, max_size=3)


def agree_throughout(
    stream: MappedStream, history: list[list[Raw | Again | Growth]], kills: list[str]
) -> None:
    """Compact a history in runs, then rebuild; after each the tables are those of the fold.

    Each run is the second one: the first is killed at a step.
    """
    settings = stream.settings
    for records, step in zip(history, kills, strict=False):
        stream.send(records)
        with maybe_killing(step, compaction, folding, input_update, fold):
            run(settings)
        run(settings)
        agree(settings, stream.fold)
    if history[0]:
        start(settings)
        assert swap(settings)["changed_holders"] == 0
        agree(settings, stream.fold)


def mapped(settings: Settings, text: str) -> Settings:
    """Return settings with a file of that text."""
    file = settings.home / "inputs.yaml"
    file.write_text(text)
    return settings.model_copy(update={"inputs": file})


FILE = """\
positions:
  {mode}
  fields:
    Client: customer.id
    Ticker: "`the ticker`"
    Amount: qty
    Exchange: mic || ''
"""
MODES = {"bare": "format: json", "connect": "envelope: connect", "debezium": "envelope: debezium"}


@pytest.mark.one_of("histories cut into any runs")
@example_settings(
    max_examples=up_to(2, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    strategies.lists(strategies.lists(RECORDS, max_size=15), min_size=1, max_size=3),
    KILLS,
    strategies.sampled_from([*MODES]),
)
def test_any_mapped_history_with_kills_equals_the_fold_of_the_plain_one(
    fresh: Callable[[], Settings],
    history: list[list[Raw | Again | Growth]],
    kills: list[str],
    mode: str,
) -> None:
    settings = mapped(fresh(), FILE.format(mode=MODES[mode]))
    agree_throughout(MappedStream(settings, mode=mode), history, kills)


def test_whose_records_are_all_rejected_is_told_what_finds_their_form(
    fresh: Callable[[], Settings], caplog: pytest.LogCaptureFixture
) -> None:
    stream, avro = Stream(fresh()), Raw("positions", b"1", b"\0\0\0\0\1\x06")
    stream.compact(avro, avro)
    assert "2 records rejected" in caplog.text
    assert "`shardpost inputs suggest`" in caplog.text
    caplog.clear()
    stream.compact(avro, position("2", "client1", "NASDAQ"))
    assert "1 records rejected" in caplog.text
    assert "suggest" not in caplog.text


def book(client: str, own: str, **more: Any) -> bytes:
    form = {"customer": {"id": client}, "Ticker": "T", "Amount": 1, "Exchange": "NASDAQ"}
    return json.dumps(form | {"book": own} | more).encode()


BOOKS = """\
positions:
  key_format: json
  fields: {Client: customer.id}
  where: book = 'OWN'
"""


def test_a_topic_of_several_books_gives_the_holders_of_ours(fresh: Callable[[], Settings]) -> None:
    settings = mapped(fresh(), BOOKS)
    keys = {number: json.dumps({"id": number}).encode() for number in range(4)}
    count = settings.partitions

    def send(number: int, value: bytes | None) -> None:
        key = keys[number]
        produce(settings, [Raw("positions", key, value, partition=partition_of(key, count))])

    for number, (client, own) in enumerate([("a", "OWN"), ("b", "OWN"), ("c", "ELSE")]):
        send(number, book(client, own))
    send(3, book("d", "OWN", Amount="5"))
    result = run(settings)
    assert (result["skipped"], result["rejected"], result["letters"]) == (1, 1, 1)
    assert held(settings) == published(settings) == {"a": ["0"], "b": ["1"]}
    [letter] = committed(settings, settings.topic("dead-letters"))
    assert header(letter, "origin-key") == keys[3].decode()
    assert letter.value == book("d", "OWN", Amount="5")
    send(1, book("b", "ELSE"))  # it moves to another book
    send(0, None)
    send(2, book("c", "OWN"))
    assert run(settings)["skipped"] == 1
    assert held(settings) == published(settings) == {"c": ["2"]}
    snapshot = snapshots.current(installed(settings).tables)
    assert not snapshot.scattered
    at = at_snapshot(snapshot, POSITION_EVENTS)
    found = rows(installed(settings).tables, "SELECT kind, raw_key FROM position_events", at)
    assert {one["raw_key"] for one in found} == {*keys.values()}
    # The topic holds all of it: nothing is closed.
    assert run(settings, reconcile=True)["reconciled"] == 0
    assert held(settings) == {"c": ["2"]}


@pytest.mark.parametrize("few", [True, False])
def test_of_keys_with_one_id_the_later_record_counts_whatever_partition_it_is_in(
    fresh: Callable[[], Settings], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not few:
        set_thresholds(monkeypatch, few=0, per_task=7, read_at_once=0)
    settings = mapped(fresh(), BOOKS)
    spaced = [b'{"id":%s"a"}' % (b" " * n) for n in range(50)]
    count, now = settings.partitions, 1_790_000_000_000
    homes = {partition_of(key, count): key for key in spaced}
    keys = [homes[number] for number in sorted(homes)]
    assert len(keys) > 3

    def send(*clients: str) -> None:
        """Send a record of each key, the later the earlier its client comes."""
        ours = [
            Raw("positions", key, book(client, "OWN"), now - n, partition_of(key, count))
            for n, (key, client) in enumerate(zip(keys, clients, strict=False))
        ]
        produce(settings, ours[::-1] if count % 2 else ours)

    send("last", "middle", "first")
    run(settings)
    assert held(settings) == {"last": ["a"]}
    assert snapshots.current(installed(settings).tables).scattered
    send("of another run")
    run(settings)
    assert held(settings) == published(settings) == {"of another run": ["a"]}
    start(settings)
    assert swap(settings)["changed_holders"] == 0


def test_another_mapping_is_refused_until_it_is_meant_or_all_is_decoded_by_it(
    stream: Stream,
) -> None:
    settings = stream.settings
    stream.compact(position("1", "client1", "NASDAQ"), position("2", "client2", "NASDAQ"))
    text = "positions: {fields: {Client: \"concat(Client, '!')\"}}"
    other = mapped(settings, text)
    for asked in ({}, {"reconcile": True}, {"country_changed": True}):
        with pytest.raises(UsageError, match="SHARDPOST_INPUTS: the records of snapshot 1 were"):
            run(other, **asked)
    start(other)
    difference = swap(other)
    assert difference["changed_holders"] == 4
    assert held(other) == published(other) == {"client1!": ["1"], "client2!": ["2"]}
    produce(settings, [closed("1")])
    run(other)
    assert held(other) == {"client2!": ["2"]}
    with pytest.raises(UsageError, match="were decoded by another one"):
        run(settings)
    with pytest.raises(ShardpostError, match="were decoded by another one"):
        rollback(other)  # by which mapping would it decode what came meanwhile?
    rollback(settings)
    assert held(settings) == {"client2": ["2"]}
    run(settings)
    assert run(other, inputs_changed=True)["changed"] is True
    assert held(other) == {"client2": ["2"]}
    produce(settings, [position("3", "client3", "NASDAQ")])
    run(other)
    assert held(other) == published(other) == {"client2": ["2"], "client3!": ["3"]}
    assert snapshots.current(installed(other).tables).decoder is None
    assert registry.current(installed(other).tables) is not None


def test_a_wrong_expression_is_refused_before_there_is_a_record_of_its_input(
    stream: Stream,
) -> None:
    settings = stream.settings
    wrong = mapped(settings, "clients: {fields: {Email: lowercase(mail)}}")
    why = "SHARDPOST_INPUTS: clients.fields.Email: .*lowercase"
    stream.send([position("1", "client1", "NASDAQ")])
    with pytest.raises(UsageError, match=why):
        run(wrong)
    assert snapshots.newest(installed(settings).tables) is None
    stream.compact(position("2", "client2", "NASDAQ"))
    with pytest.raises(UsageError, match=why):
        run(wrong, inputs_changed=True)
    with pytest.raises(UsageError, match=why):
        start(wrong)
    assert snapshots.current(installed(settings).tables).inputs is None
    assert run(settings)["changed"] is False
    assert held(settings) == {"client1": ["1"], "client2": ["2"]}


def test_a_mapped_language_is_that_of_the_mails(
    fresh: Callable[[], Settings], spark: SparkSession
) -> None:
    settings = mapped(fresh(), "clients: {envelope: connect, fields: {Language: prefs.lang}}")
    form = {"Name": "N", "Email": "n@x.example", "Subscribed": True, "prefs": {"lang": "pt-BR"}}
    key = connect(b'"c"')
    produce(settings, [Raw("clients", key, connect(json.dumps(form).encode()))])
    run(settings)
    tables, snapshot = installed(settings).tables, snapshots.current(installed(settings).tables)
    assert rows(tables, "SELECT key, name FROM clients", at_snapshot(snapshot, CLIENTS)) == [
        {"key": "c", "name": "N"}
    ]
    contact = contact_of(tables, snapshot, "c")
    assert contact is not None
    assert contact.language == "pt-BR"
    assert contact_languages(spark, tables, snapshot).collect() == [("c", "pt-BR")]
