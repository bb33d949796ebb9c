"""Locks, files that machines share, and why the last run was refused."""
