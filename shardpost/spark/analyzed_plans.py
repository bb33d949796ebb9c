"""Transforms of Spark that are analyzed once, and run over other rows of the same columns.

To resolve some hundreds of expressions takes Spark's analyzer a tenth of a second, however few the
rows are. What it has resolved is kept, and put over the new rows.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import StructField, StructType


def analyzed_once(
    transform: Callable[..., DataFrame], rows: DataFrame, *arguments: Any
) -> DataFrame:
    """Return `transform(rows, *arguments)`, which may only project and filter the rows.

    The arguments are hashable, and equal ones give equal transforms.
    """
    known = _over_no_rows(rows.sparkSession, rows.schema.json(), transform, arguments)
    return _put_over(known, rows)


@lru_cache(maxsize=16)
def _over_no_rows(
    spark: SparkSession,
    schema: str,
    transform: Callable[..., DataFrame],
    arguments: tuple[Any, ...],
) -> DataFrame:
    # All may be null: a plan leaves out to ask for nulls where there is none.
    fields = StructType.fromJson(json.loads(schema)).fields
    columns = StructType([StructField(field.name, field.dataType) for field in fields])
    return transform(spark.createDataFrame([], columns), *arguments)


def _put_over(known: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the plan of one frame over the rows of another, in the place of its own."""
    spark = rows.sparkSession
    jvm: Any = spark.sparkContext._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    no_names = jvm.PythonUtils.toSeq([])
    steps, node = [], _analyzed(known)
    while node.children().size():
        [child] = [node.children().apply(n) for n in range(node.children().size())]
        steps.append(node)
        node = child
    there = _analyzed(rows)
    names, given = node.output(), there.output()
    same = [
        catalyst.expressions.Alias(
            given.apply(n),
            names.apply(n).name(),
            names.apply(n).exprId(),
            no_names,
            jvm.scala.Option.empty(),
            no_names,
        )
        for n in range(names.size())
    ]
    plan = catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(same), there)
    for step in reversed(steps):
        plan = step.withNewChildren(jvm.PythonUtils.toSeq([plan]))
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return ClassicDataFrame(made, spark)


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
