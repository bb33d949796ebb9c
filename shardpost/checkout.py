"""The checkout that Shardpost runs from, and its folders that are no part of the package."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
DAGS = CHECKOUT / "dags"
PLUGINS = CHECKOUT / "plugins"
SPARK_JOBS = CHECKOUT / "spark_jobs"
