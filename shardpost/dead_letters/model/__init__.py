"""Pure values, decisions and plans: no Spark, Airflow, Kafka client, mail, clock or environment."""
