"""Alerts, their channels, and measurements: values, and their tables.

The watch, failed tasks and the maintenance of the tables stand above it.
"""
