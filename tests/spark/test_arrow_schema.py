"""A table's Arrow schema has the names and types that Spark reads from the same DDL."""

from typing import cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.table import Table
from shardpost.maintenance.stored_tables import TABLES


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_names_and_types_are_those_of_sparks_own_reading(table: Table, spark: SparkSession) -> None:
    del spark  # StructType.fromDDL asks the JVM
    theirs = cast("StructType", StructType.fromDDL(table.ddl))
    assert arrow_schema(table) == to_arrow_schema(theirs)
