"""The embedded stack: broker, mail sink and Airflow on loopback.

Here: arguments with which Airflow opens its SQLite database; it imports them by name.
"""

# Its processes write in parallel: with SQLite's default of 5 s, a busy machine gets "database is
# locked".
CONNECT = {"timeout": 60}

# The API server commits its action log on its event loop. Where another request holds SQLite's lock
# and needs that loop to release it, both wait until this timeout; then one of them fails, and its
# client retries.
CONNECT_API = {"timeout": 10}
