"""Keys and values that name a schema of a registry, as structs: Confluent's wire format, and Avro.

A byte 0 and the schema's id stand before the bytes, or a byte 1 and its GUID; or those stand in the
header `__key_schema_id` or `__value_schema_id`. Each record is read by the schema that it was
written with, as the newest one of its subject has it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import pandas as pd
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.functions import pandas_udf

from shardpost.holders.model.avro_schema import END, LEFT, WHOLE, AvroSchema
from shardpost.holders.model.fields import MAX_QUOTED
from shardpost.holders.model.input_mapping import InputMapping, Part
from shardpost.kafka.protobuf_messages import compiled, messages
from shardpost.kafka.registered_values import no_value, place_of
from shardpost.kafka.schema_registry import Schema, SchemaRegistry
from shardpost.spark.driver import innermost_cause
from shardpost.values.topic_names import TopicName

# Who writes so many schemas into one topic means harm: each is asked for.
MOST_SCHEMAS = 1_000
KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
_OPTIONS = {
    "mode": "PERMISSIVE",
    "datetimeRebaseMode": "CORRECTED",
    "recursiveFieldMaxDepth": "1",  # a field in which its own record comes again is left out
    "enableStableIdentifiersForUnionType": "true",
}
_HEADER = "try_element_at(filter(headers, one -> one.key = '__{part}_schema_id'), -1).value"
# What names the schema, in hexadecimal; "" where nothing does.
_ID = "regexp_extract(hex(substr(coalesce({header}, {part}), 1, 17)), '^(00.{{8}}|01.{{32}})', 1)"
# The indexes of a type of Protobuf are behind the id.
_PAYLOAD = "substring(concat(coalesce({header}, X''), {part}), 1 + length({part}_id) div 2)"
_DECODED, WHY = "shardpost_decoded", "why"
BATCH = 256  # records at once in Python, as some may be of several megabytes
_OF_PROTOBUF = f"STRUCT<{WHOLE}: STRING, {LEFT}: BINARY, {WHY}: STRING>"


def registered(
    raw: DataFrame, name: TopicName, mapping: InputMapping, registry: SchemaRegistry
) -> DataFrame:
    """Return raw records with `<part>_struct`, and `<part>_problem`: why that one is null.

    Of keys and of values, if they have schemas. The struct has the names of the newest schema, or
    those of its aliases that the mapping names; of a schema that is no record it is the value as a
    variant; with the format json-schema, the text that is to be parsed. Both are null where there
    is no key or value. ShardpostError if the registry does not answer.
    """
    sources = mapping.key.removeprefix("key"), mapping.where or "", *mapping.sources(name).values()
    words = frozenset(word for source in sources for word in re.findall(r"\w+", source))
    parts: list[Part] = [one for one in get_args(Part) if mapping.format_of(one) in KINDS]
    raw = raw.withColumns({f"{part}_id": _column(_ID, part) for part in parts})
    sets = [F.collect_set(f"{part}_id") for part in parts]
    for part, ids in zip(parts, raw.agg(*sets).collect()[0], strict=True):
        asked = sorted({*ids} - {""}, reverse=True)[:MOST_SCHEMAS]
        schemas = {one: registry.schema(_place(one)) for one in asked}
        raw = _Structs(raw, KINDS[mapping.format_of(part)], words, part, registry, schemas).rows()
    return raw.drop(*(f"{part}_id" for part in parts))


def _not_utf8(column: Column, type_: T.DataType) -> list[Column]:
    """Return of each text in a column whether it is no UTF-8: a variant has all such as one."""
    match type_:
        case T.StringType():
            return [~F.is_valid_utf8(column)]
        case T.StructType():
            return [no for one in type_ for no in _not_utf8(column[one.name], one.dataType)]
        case T.ArrayType():
            return [F.exists(column, lambda one: _any(_not_utf8(one, type_.elementType)))]
        case T.MapType():
            entry = T.StructType().add("key", type_.keyType).add("value", type_.valueType)
            return _not_utf8(F.map_entries(column), T.ArrayType(entry))
    return []


def _any(conditions: list[Column]) -> Column:
    return F.exists(F.array(F.lit(False), *conditions), lambda one: F.coalesce(one, F.lit(False)))


def _column(text: str, part: Part) -> Column:
    return F.expr(text.format(part=part, header=_HEADER.format(part=part)))


def _place(schema: str) -> str:
    return place_of(bytes.fromhex(schema))


@dataclass(frozen=True)
class _Structs:
    """How keys or values become structs; `refused` says why all those of a schema are null."""

    raw: DataFrame
    kind: str
    words: frozenset[str]  # that the mapping names
    part: Part
    registry: SchemaRegistry
    schemas: dict[str, Schema | None]  # the latest is the first
    refused: dict[str, str] = field(default_factory=dict)

    def rows(self) -> DataFrame:
        """Return the records with both columns."""
        for one, schema in self.schemas.items():
            if schema is None or schema.kind != self.kind:
                found = schema.kind if schema else "none in the registry"
                self.refused[one] = f"expected one of {self.kind}, found {found}"
        text = _column(_PAYLOAD, self.part).cast("string")
        as_text = F.struct(text.alias(WHOLE), F.lit(END).alias(LEFT))
        made_of = {"AVRO": self._avro, "PROTOBUF": self._protobuf}
        made = self.raw.withColumn(_DECODED, made_of.get(self.kind, lambda: as_text)())
        [type_] = [one.dataType for one in made.select(f"{_DECODED}.{WHOLE}").schema]
        whole, left = (F.col(_DECODED)[name] for name in (WHOLE, LEFT))
        problem = self._problem(left, _any(_not_utf8(whole, type_)))
        if self.kind == "AVRO" and not isinstance(type_, T.StructType):
            alone = F.to_variant_object(F.struct(whole.alias("v")))
            whole = F.variant_get(alone, "$.v", "variant")
        made = made.withColumn(f"{self.part}_problem", problem)
        struct = F.when(F.col(f"{self.part}_problem").isNull(), whole)
        return made.withColumn(f"{self.part}_struct", struct).drop(_DECODED)

    def _problem(self, left: Column, is_not_utf8: Column) -> Column:
        id_, begins = F.col(f"{self.part}_id"), F.hex(F.substring(self.part, 1, 8))
        no_id, other = "expected the id of a schema", "expected a value as the newest schema has it"
        whys = self.refused.items()
        reasons = (
            F.when(id_ == "", F.concat(F.lit(f"{no_id}, found bytes "), begins)),
            *(F.when(id_ == one, f"schema {_place(one)}: {why}") for one, why in whys),
            F.col(_DECODED)[WHY] if self.kind == "PROTOBUF" else F.lit(None),
            F.when(left.isNull(), F.concat(F.lit(f"{other}, found bytes "), begins)),
            F.when(left != F.lit(END), F.lit(f"{other}, found more bytes behind it")),
            F.when(is_not_utf8, f"expected a {self.part} in UTF-8, found other bytes"),
        )
        return F.when(F.col(self.part).isNotNull(), F.coalesce(*reasons))

    def _avro(self) -> Column:
        """Return values as structs of WHOLE and LEFT; null where that cannot be."""
        right = {one: s for one, s in self.schemas.items() if s and one not in self.refused}
        if (newest := self._newest(right)) is None:
            return F.lit(None).cast(f"STRUCT<{WHOLE}: STRUCT<>, {LEFT}: BINARY>")
        decoded = F.when(F.lit(False), self._from_avro(newest.whole, newest))
        alike = defaultdict[str, list[str]](list)
        for one, schema in right.items():
            try:
                writer = self._parsed(schema)
                writer.require_meanings_of(newest)
                alike[writer.whole].append(one)
            except ValueError as error:
                self.refused[one] = str(error)
        for whole, ones in alike.items():
            is_one = F.col(f"{self.part}_id").isin(ones)
            decoded = decoded.when(is_one, self._from_avro(whole, newest))
        return decoded

    def _protobuf(self) -> Column:
        """Return values as structs of WHOLE, LEFT and WHY, which one of them has."""
        files = {}
        for one, schema in self.schemas.items():
            if schema and one not in self.refused:
                try:
                    files[one] = compiled(schema)
                except ValueError as error:
                    self.refused[one] = f"expected one of Protobuf, found {error}"
        self.raw.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
        return _as_json(files)(F.col(f"{self.part}_id"), _column(_PAYLOAD, self.part))

    def _newest(self, right: dict[str, Schema]) -> AvroSchema | None:
        """Return the schema as which all are read: the subject's newest, or the newest of these."""
        why = ""
        for schema in filter(None, (self.registry.newest(self.part), *right.values())):
            try:
                newest = self._parsed(schema, self.words)
                self.raw.select(self._from_avro(newest.whole, newest))
            except (ValueError, PySparkException, Py4JError) as error:
                found = innermost_cause(error)[:MAX_QUOTED]
                why = f"expected one that Spark can read, found {found}"
            else:
                return newest
        self.refused.update(dict.fromkeys(right, why))
        return None

    def _from_avro(self, writer: str, newest: AvroSchema) -> Column:
        payload = F.concat(_column(_PAYLOAD, self.part), F.lit(END))
        return from_avro(payload, writer, _OPTIONS | {"avroSchema": newest.whole})

    def _parsed(self, schema: Schema, words: frozenset[str] = frozenset()) -> AvroSchema:
        """Return a schema with what it refers to inside; ValueError if it is none of Avro's."""
        jvm: Any = self.raw.sparkSession.sparkContext._jvm
        parser = jvm.org.apache.avro.Schema.Parser()
        try:
            text = [parser.parse(one).toString() for one in schema.texts][-1]
        except Py4JError as error:
            found = innermost_cause(error)[:MAX_QUOTED]
            raise ValueError(f"expected one of Avro, found {found}") from None
        return AvroSchema(text, words)


def _as_json(files: dict[str, bytes]) -> Callable[..., Column]:
    """Return a function of Spark that reads messages, by the files of their schemas."""

    def read(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.DataFrame]:
        for ids, payloads in batches:
            rows = [_read(files, *one) for one in zip(ids, payloads, strict=True)]
            yield pd.DataFrame(rows, columns=[WHOLE, LEFT, WHY])

    made: Callable[..., Column] = pandas_udf(read, _OF_PROTOBUF)  # type: ignore[call-overload]
    return made


def _read(files: dict[str, bytes], one: str, payload: bytes | None) -> tuple[object, ...]:
    if payload is None or one not in files:
        return None, None, None
    try:
        return messages(files[one]).text(payload), END, None
    except MemoryError:
        raise
    except Exception as error:  # of any bytes
        return None, None, no_value(_place(one), error)
