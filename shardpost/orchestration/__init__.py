"""What DAGs share: operators for Spark jobs and approvals, defaults, failures, the asset.

With the embedded stack the only place of the package that imports Airflow.
"""

from shardpost.orchestration.approval import ANSWER, FORM, Approval
from shardpost.orchestration.defaults import DEFAULTS, HOLDERS
from shardpost.orchestration.failures import alert_of_attention, in_words
from shardpost.orchestration.params import require_known
from shardpost.orchestration.spark_job import SparkJob

__all__ = [
    "ANSWER",
    "DEFAULTS",
    "FORM",
    "HOLDERS",
    "Approval",
    "SparkJob",
    "alert_of_attention",
    "in_words",
    "require_known",
]
