"""One file per Spark job: read, transform, write."""
