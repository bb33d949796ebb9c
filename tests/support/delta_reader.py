"""A Spark driver of its own: prints rows of Delta tables, read by Delta's own reader, as JSON.

Arguments: pairs of a table's path and a version.
"""

import json
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for path, version in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    table = spark.read.format("delta").option("versionAsOf", version).load(path)
    print(json.dumps([json.loads(row) for row in table.toJSON().collect()]))  # noqa: T201
