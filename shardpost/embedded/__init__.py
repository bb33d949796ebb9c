"""The embedded stack: broker, mail sink and Airflow on loopback."""
