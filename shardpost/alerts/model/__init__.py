"""Conditions, alerts and metrics, as values, and the tables that keep them.

Pure.
"""
