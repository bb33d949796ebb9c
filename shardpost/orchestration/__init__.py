"""What DAGs share: operators for Spark jobs and approvals, defaults, failures, the asset.

With the embedded stack the only place of the package that imports Airflow.
"""

from shardpost.orchestration.spark_job import SparkJob
from shardpost.orchestration.tasks import (
    ANSWER,
    DEFAULTS,
    FORM,
    HOLDERS,
    Approval,
    alert_of_attention,
    flag_param,
    require_known,
    task_errors,
    text_param,
)

__all__ = [
    "ANSWER",
    "DEFAULTS",
    "FORM",
    "HOLDERS",
    "Approval",
    "SparkJob",
    "alert_of_attention",
    "flag_param",
    "require_known",
    "task_errors",
    "text_param",
]
