"""Lag as values: what was found of a partition and of a reader in, rows out."""
