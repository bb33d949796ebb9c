"""What DAGs share: the operator for Spark jobs, the defaults of every task, failures, the asset.

With the embedded stack the only place of the package that imports Airflow.
"""

from shardpost.orchestration.defaults import DEFAULTS, HOLDERS
from shardpost.orchestration.failures import alert_of_attention, in_words
from shardpost.orchestration.spark_job import SparkJob

__all__ = ["DEFAULTS", "HOLDERS", "SparkJob", "alert_of_attention", "in_words"]
