"""A Spark driver of its own, with Delta's own reader; one request per line, answered by one.

Requests come by the named pipe that it is given, since spark-submit passes no input on; an empty
line ends it. A request is JSON: {"versions": [[path, version], …]}, answered by the rows of each,
or {"script": SQL, "selects": {name: query}}, answered by {name: rows} or {"error": text}.
"""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def answer(request: dict[str, Any]) -> Any:
    """Return what a request asks for."""
    if "versions" in request:
        return [rows_of(path, version) for path, version in request["versions"]]
    try:
        for statement in request["script"].split(";\n"):
            if any(line and not line.startswith("--") for line in statement.splitlines()):
                spark.sql(statement)
        return {name: spark.sql(query).collect() for name, query in request["selects"].items()}
    except (PySparkException, Py4JError) as error:
        return {"error": str(error)}


def rows_of(path: str, version: int) -> list[dict[str, Any]]:
    """Return the rows of a version of a table, without nulls."""
    table = spark.read.format("delta").option("versionAsOf", version).load(path)
    return [json.loads(row) for row in table.toJSON().collect()]


with Path(sys.argv[1]).open() as requests:
    for line in itertools.takewhile(str.strip, requests):
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201
