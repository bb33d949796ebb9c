"""Run requests become run commands, and these become runs of Airflow."""
