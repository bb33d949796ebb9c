"""What Airflow opens its SQLite database with; it imports this by name."""

# Its processes write side by side: with SQLite's own 5 s, a busy machine gets "database is locked".
CONNECT = {"timeout": 60}
