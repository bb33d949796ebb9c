"""Pure values, decisions and plans: no Spark, Airflow, Kafka, mail, clock or environment."""
