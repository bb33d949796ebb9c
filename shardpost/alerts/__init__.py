"""What people are told, through which channels, and what was measured: values, and their tables.

The watch, failed tasks and the maintenance of the tables stand above it.
"""
