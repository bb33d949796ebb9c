"""Expressions of Spark SQL that people write in SHARDPOST_INPUTS, over what a record has.

An expression is evaluated behind a lambda, where Spark shares no part of it with another one: its
error rejects the record, and does no more.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.classic.column import Column as ClassicColumn

from shardpost.errors import UsageError
from shardpost.holders.model.fields import FieldType
from shardpost.holders.model.input_mapping import Names

# What an expression may give. No double: Spark makes one where digits would be lost.
_TYPES: dict[FieldType | None, tuple[type[T.DataType], ...]] = {
    None: (T.BooleanType,),
    FieldType.TEXT: (T.StringType,),
    FieldType.NUMBER: (T.DecimalType, T.IntegralType, T.StringType),
    FieldType.FLAG: (T.BooleanType, T.StringType),
}
# A text that an expression gives is a number of JSON (RFC 8259, 6), or a flag, if it looks so.
_BARE: dict[FieldType | None, str] = {
    FieldType.NUMBER: r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
    FieldType.FLAG: "^(true|false)$",
}


@dataclass(frozen=True)
class Expression:
    """An expression of Spark SQL, where the file has it, and for what; None for a condition."""

    spark: SparkSession
    place: str
    text: str
    of: FieldType | None

    def refused(self, why: str) -> UsageError:
        """Return the error that it is not what is expected."""
        return UsageError(f"SHARDPOST_INPUTS: {self.place}: {why}")

    @cached_property
    def names(self) -> list[tuple[int, int, Names]]:
        """The paths in it, in order, each with where it begins and where the rest does."""
        parser = self.spark._jsparkSession.sessionState().sqlParser()
        try:
            nodes = [(parser.parseExpression(self.text), frozenset[str]())]
        except ParseException as error:
            raise self.refused(f"expected an expression: {said(error)}") from None
        found = []
        while nodes:
            node, bound = nodes.pop()
            kind, children = node.getClass().getSimpleName(), _listed(node.children())
            if kind == "LambdaFunction":
                arguments = _listed(node.arguments())
                bound |= {_listed(one.nameParts())[0].lower() for one in arguments}
                children = [node.function()]
            elif kind in {"UnresolvedAttribute", "UnresolvedNamedLambdaVariable"}:
                names, at = tuple(_listed(node.nameParts())), node.origin()
                if names[0].lower() not in bound:
                    begins, ends = at.startIndex().get(), at.stopIndex().get() + 1
                    # The parser leaves the backticks around it out.
                    begins -= self.text[begins - 1 : begins] == "`"
                    found.append((begins, ends + (self.text[ends : ends + 1] == "`"), names))
            nodes += [(child, bound) for child in children]
        return sorted(found)

    def result(self, rows: DataFrame, paths: list[Names]) -> tuple[Column, T.DataType]:
        """Return its result as a struct of `x`, null where it fails, and the type of `x`.

        Their column `scope` has the texts of the paths, v0, v1, …; UsageError for another type.
        """
        text = self.text
        for begins, ends, names in reversed(self.names):
            text = f"{text[:begins]}own_row.v{paths.index(names)}{text[ends:]}"
        # On lines of its own: it may end in a comment.
        text = f"transform(array(scope), own_row -> named_struct('x', (\n{text}\n)))"
        column, jvm = F.get(F.expr(text), F.lit(0)), cast(Any, self.spark.sparkContext._jvm)
        try:
            alone = rows.select(column.getField("x").alias("x"))
        except AnalysisException as error:
            raise self.refused(said(error)) from None
        plan, catalyst = alone._jdf.queryExecution().analyzed(), jvm.org.apache.spark.sql.catalyst
        varies = plan.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE())
        if varies or not plan.deterministic():
            raise self.refused("expected what follows from one record: no now(), no rand()")
        type_, types = alone.schema["x"].dataType, _TYPES[self.of]
        if not isinstance(type_, (*types, T.NullType)):
            wanted = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in types)
            raise self.refused(f"expected {wanted}, found {type_.simpleString()}: cast it")
        utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
        tried = catalyst.expressions.TryEval(utils.expression(column._jc))
        return ClassicColumn(utils.column(tried)), type_

    def variant(self, result: Column, type_: T.DataType) -> tuple[Column, Column]:
        """Return a result of that type as the value of a field, and its text."""
        text, found = result.cast("string"), result.cast("variant")
        if self.of in _BARE and isinstance(type_, T.StringType):
            is_bare = F.rlike(text, F.lit(_BARE[self.of]))
            found = F.when(is_bare, F.try_parse_json(text)).otherwise(found)
        return found, text


def said(error: Exception) -> str:
    """Return the first line of what Spark says."""
    return str(error).strip().partition("\n")[0]


def _listed(seq: Any) -> list[Any]:
    return [seq.apply(n) for n in range(seq.size())]
