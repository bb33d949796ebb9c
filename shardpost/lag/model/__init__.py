"""Lag as pure functions: from the state of partitions and readers to rows."""
