"""Transforms and tasks that run on Spark."""
