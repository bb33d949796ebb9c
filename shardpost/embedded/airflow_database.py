"""What Airflow opens its SQLite database with; it imports this by name."""

# Its processes write side by side: with SQLite's own 5 s, a busy machine gets "database is locked".
CONNECT = {"timeout": 60}

# The API server commits its action log on its event loop. Where another request holds SQLite's lock
# and needs that loop to let go of it, all stand still until this is over; then one of them fails,
# and is asked again.
CONNECT_API = {"timeout": 10}
