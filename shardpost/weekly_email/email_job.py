"""The Spark job `weekly_email`, as commands and DAGs submit it."""

from shardpost.spark.job_spec import JobSpec

WEEKLY_EMAIL = JobSpec("weekly_email")
