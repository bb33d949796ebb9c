"""The one-machine stack: broker, mail sink and Airflow on loopback."""
