"""The defaults of every task, and the asset that DAGs share."""

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset

from shardpost.orchestration.failures import alert, say_that_it_is_tried_again

# Updated by compact_positions, read by weekly_email.
HOLDERS = Asset("share_holders")

# default_args of every DAG.
DEFAULTS: dict[str, Any] = {
    "owner": "shardpost",
    "retries": 2,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=15),
    "execution_timeout": timedelta(hours=1),
    "on_retry_callback": say_that_it_is_tried_again,
    "on_failure_callback": alert,
}
