"""What was erased of a client, as values."""
