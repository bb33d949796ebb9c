"""The work of rebuilds on Spark."""
