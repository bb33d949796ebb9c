"""What was measured: the metrics, and the table that keeps their values."""
