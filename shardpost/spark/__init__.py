"""Spark: how jobs are submitted, how they start and end, and how they read Kafka and Delta."""
