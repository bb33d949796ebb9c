"""Records of a mapped input (model/input_mapping.py) as rows of its history.

Of each its id is found, as text, and each field, as decoding.py judges those: variants, whatever
the format, with numbers as they were written. A path keeps the type that it has there; in an
expression, a name is its text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from shardpost.errors import UsageError
from shardpost.holders.model.fields import FieldType, RecordKind
from shardpost.holders.model.input_mapping import FIELDS, InputMapping, Names, Part, path_of
from shardpost.holders.spark import decoding
from shardpost.holders.spark.decoding import (
    broken_text,
    closes_the_array,
    field_of,
    is_one_object,
    parsed,
    with_numbers_quoted,
)
from shardpost.holders.spark.expressions import Expression, said
from shardpost.values.topic_names import TopicName

# A record's own key, value and headers.
OWN = {one: f"own_{one}" for one in ("key", "value", "headers")}


def mapped(
    raw: DataFrame, name: TopicName, mapping: InputMapping, passed: tuple[str, ...]
) -> DataFrame:
    """Return raw records as `decoded` does, each with the value and the key as they came.

    What a registry decoded is in the columns of registered.py. UsageError for an expression that
    cannot be.
    """
    translation = Translation(raw, name, mapping)
    rows = translation.rows((*passed, *OWN.values()))
    fields = {}
    for field in FIELDS[name]:
        value, written = (F.col(f"{one}_{field.name}") for one in ("found", "written"))
        fields[field] = decoding.Found(value, written, F.to_json(value))
    found = decoding.key_reason(F.when(F.lit(False), ""), FIELDS[name])
    found = decoding.field_reason(found.when(F.col("other_kind").isNotNull(), None), fields)
    rows, wrong = rows.withColumn("wrong", found), F.col("wrong")
    looked_at = (  # where a field was looked for
        F.when(F.contains(wrong, F.lit(f" for {field}, found ")), f" ({source})")
        for field, source in mapping.fields.items()
    )
    found = F.when(wrong.isNotNull(), F.concat_ws("", wrong, *looked_at))
    rows = rows.withColumn("reason", F.coalesce("problem", found))
    is_rejected, key = F.col("reason").isNotNull(), decoding.valid_key()
    is_good = ~is_rejected & F.col("other_kind").isNull()
    is_other = ~F.col("raw_key").eqNullSafe(F.col("own_key"))
    return rows.select(
        key.alias("key"),
        *("partition", "offset", "timestamp"),
        F.col("own_value").alias("value"),
        decoding.kind_of(F.col("other_kind")).alias("kind"),
        *("reason", *passed),
        F.when(is_rejected | is_other, F.col("own_key")).alias("raw_key"),
        # They may say which schema a value has.
        F.when(is_rejected | F.lit(mapping.has_schemas), F.col("own_headers")).alias("headers"),
        *(
            F.when(is_good, decoding.column_value(field, found)).alias(field.column)
            for field, found in fields.items()
        ),
    )


# Maybe a number that is no whole one of 18 digits at most: those are the same when written again.
_INEXACT = r"[0-9]([.eE][-+0-9]|[0-9]{18})"
_PLAIN = ("STRING", "BOOLEAN", "BIGINT")  # that JSON has as they are
_EXPECTED = {
    "none": "one JSON object",
    "connect": "one JSON object with schema and payload",
    "debezium": "one JSON object with before, after and op: c, r, u or d",
}
_ENVELOPE = "STRUCT<payload: VARIANT, op: VARIANT, before: VARIANT, after: VARIANT>"


def _at(variant: Column, names: Iterable[str], type_: str = "variant") -> Column:
    """Return what a variant has at a path, of a type; null where it has nothing there."""
    quoted = "".join(f"['{name}']" if '"' in name else f'["{name}"]' for name in names)
    is_part = quoted or type_ != "variant"
    return F.variant_get(variant, f"${quoted}", type_) if is_part else variant


def _key_text(variant: Column) -> Column:
    """Return the text of a key: of an object with one field of that, else all as JSON, by name."""
    texts = F.try_variant_get(variant, "$", "map<string,string>")
    one = F.when(F.size(texts) == 1, F.get(F.map_values(texts), F.lit(0)))
    several = F.when(F.size(texts) > 1, F.to_json(texts))
    return F.when(texts.isNotNull(), F.coalesce(one, several)).otherwise(_at(variant, (), "string"))


@dataclass(frozen=True)
class Translation:
    """How the raw records of an input become plain ones."""

    raw: DataFrame
    name: TopicName
    mapping: InputMapping

    @cached_property
    def expressions(self) -> dict[str, Expression]:
        """What is no path, by our field, `key` or `where`; and `where`, whatever it is."""
        spark, types = self.raw.sparkSession, {one.name: one.type for one in FIELDS[self.name]}
        found = {
            field: Expression(
                spark, f"{self.name}.fields.{field}", text, types.get(field, FieldType.TEXT)
            )
            for field, text in self.mapping.sources(self.name).items()
            if not self._path(text)
        }
        if not path_of(key := self.mapping.key):
            found["key"] = Expression(spark, f"{self.name}.key", key, FieldType.NUMBER)
        if where := self.mapping.where:
            found["where"] = Expression(spark, f"{self.name}.where", where, None)
        return found

    def _path(self, text: str) -> Names:
        """Return the path of the value that a source is; none if it is another expression."""
        part, names = self.mapping.located(path_of(text) or ("key",))
        return names if part == "value" else ()

    def rows(self, passed: tuple[str, ...]) -> DataFrame:
        """Return records with `raw_key`, the id; what is found of each field, and as written.

        With `problem`, why that is nothing, and `other_kind` of a record that is no upsert.
        """
        kept = ("partition", "offset", "timestamp", *passed)
        rows = self.raw.withColumnsRenamed(OWN)
        # What a registry's formats are decoded to, by registered.py.
        given = [one for one in self.raw.columns if one.endswith(("_struct", "_problem"))]
        rows = rows.select(*kept, *given, *self._found("value"), *self._found("key"))
        rows = rows.select(*kept, *self._row(), *self._id())
        paths = sorted({path for one in self.expressions.values() for _, _, path in one.names})
        self._require_known(paths)
        texts = [self._named(path).alias(f"v{n}") for n, path in enumerate(paths)]
        rows = rows.select("*", F.struct(*texts or [F.lit("").alias("none")]).alias("scope"))
        made = {one: it.result(rows, paths) for one, it in self.expressions.items()}
        rows = rows.withColumns({f"made_{one}": column for one, (column, _) in made.items()})
        has_row = F.col("row").isNotNull() & F.col("value_problem").isNull() & ~F.col("is_delete")
        is_met, wrong = has_row, [F.col("value_problem"), F.col("key_problem")]
        if where := self.mapping.where:
            is_met &= F.col("made_where.x")
            none = f"expected true or false for where, found nothing ({where})"
            wrong += [self._error("where", has_row), F.when(has_row & is_met.isNull(), none)]
        are_text = {one.name for one in FIELDS[self.name] if one.type is FieldType.TEXT}
        fields = list[Column]()
        for field, source in self.mapping.sources(self.name).items():
            if names := self._path(source):
                found, written = self._at_path(names)
                written = _at(found, (), "string") if field in are_text else written
            else:
                result = F.col(f"made_{field}.x")
                found, written = self.expressions[field].variant(result, made[field][1])
                other = f"expected UTF-8 for {field}, found other bytes ({source})"
                wrong += [self._error(field, is_met), F.when(~F.is_valid_utf8(written), other)]
            fields += [found.alias(f"found_{field}"), written.alias(f"written_{field}")]
        has_key = F.col("own_key").isNotNull()
        if path := path_of(self.mapping.key):
            key = self._named(path)
        else:
            key = F.col("made_key.x").cast("string")
            wrong.append(self._error("key", has_key))
        no_key = f"expected a key, found nothing ({self.mapping.key})"
        wrong.append(F.when(has_key & key.isNull(), no_key))
        skipped = F.when(has_row & ~is_met, RecordKind.SKIPPED.value)
        return rows.select(
            *kept,
            *fields,
            key.cast("binary").alias("raw_key"),
            F.coalesce(*wrong).alias("problem"),
            skipped.when(~is_met, RecordKind.TOMBSTONE.value).alias("other_kind"),
        )

    def _error(self, one: str, counts: Column) -> Column:
        why = f"expected a value for {one}, found an error ({self.expressions[one].text})"
        return F.when(counts & F.col(f"made_{one}").isNull(), why)

    def _is_json(self, part: Part) -> bool:
        return self.mapping.format_of(part) in {"json", "json-schema", "protobuf"}

    def _written(self, part: Part) -> Column:
        """Return the text of JSON, or of a key that is no more."""
        is_own = self.mapping.format_of(part) in {"json", "text"}
        return F.col(f"own_{part}" if is_own else f"{part}_struct").cast("string")

    def _found(self, part: Part) -> list[Column]:
        """Return a part as a variant; JSON is parsed, once, and its numbers again as texts."""
        text, name = self._written(part), f"found_{part}"
        if self.mapping.format_of(part) == "text":
            return [text.alias(name)]
        if not self._is_json(part):
            column = F.col(f"{part}_struct")
            is_struct = isinstance(self.raw.schema[f"{part}_struct"].dataType, T.StructType)
            found = F.to_variant_object(column) if is_struct else column.cast("variant")
            return [found.alias(name)]
        words = with_numbers_quoted(text)
        if part == "key":
            return [parsed(words, "VARIANT").alias(name)]
        type_ = "VARIANT" if self.mapping.envelope == "none" else _ENVELOPE
        known = F.when(F.rlike(text, F.lit(_INEXACT)), parsed(words, type_))
        return [parsed(text, type_).alias(name), known.alias("found_words")]

    def _of(self, found: Column, name: str) -> Column:
        """Return a part of Debezium's envelope, which may be in Connect's."""
        if not self._is_json("value"):
            return _at(found, [name])
        return F.coalesce(field_of(found, name), _at(field_of(found, "payload"), [name]))

    def _row_in(self, found: Column) -> Column:
        """Return the row of a value, of a delete the one before."""
        match self.mapping.envelope:
            case "none":
                return F.get(found.getField("v"), F.lit(0)) if self._is_json("value") else found
            case "connect":
                return field_of(found, "payload")
            case "debezium":
                is_delete = _at(self._of(found, "op"), (), "string") == "d"
                before, after = (self._of(found, one) for one in ("before", "after"))
                return F.when(is_delete, before).otherwise(after)

    def _row(self) -> list[Column]:
        """Return the row; `words`, the same with numbers as they were written; and the rest."""
        found, is_json, is_known = F.col("found_value"), self._is_json("value"), F.lit(True)
        row, is_delete, words = self._row_in(found), F.lit(False), F.lit(None).cast("variant")
        if self.mapping.envelope == "connect":
            is_delete = F.coalesce(F.is_variant_null(row), F.lit(False))
        elif self.mapping.envelope == "debezium":
            op = _at(self._of(found, "op"), (), "string")
            is_delete, is_known = F.coalesce(op == "d", F.lit(False)), op.isin("c", "r", "u", "d")
        is_right = is_delete | (is_known & F.try_variant_get(row, "$", "struct<>").isNotNull())
        text = self._written("value") if is_json else F.to_json(found)
        passes = text.isNull() if is_json else found.isNull() | is_right
        if is_json:
            words = self._row_in(F.col("found_words"))
            is_right &= is_one_object(found) & ~closes_the_array(text)
        expected = _EXPECTED[self.mapping.envelope]
        problem = broken_text(F.when(passes, None), text, is_right, expected)
        made = {"row": row, "words": words, "is_delete": is_delete}
        made["value_problem"] = self._problem("value", problem)
        return [column.alias(name) for name, column in made.items()]

    def _id(self) -> list[Column]:
        """Return what a key is, and why it is nothing."""
        found, text = F.col("found_key"), self._written("key")
        problem = F.when(~F.is_valid_utf8(text), "expected a key in UTF-8, found other bytes")
        if self._is_json("key"):
            is_one = is_one_object(found) & ~closes_the_array(text)
            problem = broken_text(F.when(text.isNull(), None), text, is_one, "a key in JSON")
            found = F.get(found.getField("v"), F.lit(0))
            if self.mapping.envelope != "none":
                names = F.array_join(F.array_sort(F.json_object_keys(text)), ",")
                found = F.when(names == "payload,schema", _at(found, ["payload"])).otherwise(found)
        return [found.alias("own_id"), self._problem("key", problem).alias("key_problem")]

    def _problem(self, part: Part, own: Column) -> Column:
        has_other = f"{part}_problem" in self.raw.columns
        return F.coalesce(F.col(f"{part}_problem"), own) if has_other else own

    def _named(self, path: Names) -> Column:
        """Return the text of what a path in an expression names."""
        part, names = self.mapping.located(path)
        if part == "key" and self.mapping.format_of("key") == "text":
            return F.col("own_id")
        if part == "key":
            return _key_text(_at(F.col("own_id"), names))
        own, words = (_at(F.col(one), names, "string") for one in ("row", "words"))
        # In an object or an array numbers would be texts.
        is_nested = own.startswith("{") | own.startswith("[")
        return F.when(words.isNotNull() & ~is_nested, words).otherwise(own)

    def _at_path(self, names: Names) -> tuple[Column, Column]:
        """Return what the row has at a path as JSON has it, and the text of a number there."""
        found, words = (_at(F.col(one), names) for one in ("row", "words"))
        if self._is_json("value"):
            return found, _at(words, (), "string")
        is_plain, text = F.schema_of_variant(found).isin(*_PLAIN), F.to_json(found)
        return F.when(is_plain, found).otherwise(F.try_parse_json(text)), F.when(~is_plain, text)

    def _require_known(self, paths: Iterable[Names]) -> None:
        """Refuse what the file names and a registry's schema has not."""
        named = filter(None, map(path_of, self.mapping.fields.values()))
        for path in sorted({*paths, *named}):
            part, names = self.mapping.located(path)
            types = {one.name: one.dataType for one in self.raw.schema}
            if types.get(f"{part}_struct", T.StringType()) not in (T.StringType(), T.StructType()):
                row = ("after",) if (part, self.mapping.envelope) == ("value", "debezium") else ()
                column = reduce(Column.getField, (*row, *names), F.col(f"{part}_struct"))
                try:
                    self.raw.select(column)
                except AnalysisException as error:
                    text = f"{self.name}: {'.'.join(path)}: {said(error)}"
                    raise UsageError(f"SHARDPOST_INPUTS: {text}") from None
