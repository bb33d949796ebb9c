"""Benchmarks that a user can run: `make bench`; bench/README.md says what they measure."""
