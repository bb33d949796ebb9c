"""Conditions, alerts and metrics, as pure values, and the tables that keep them."""
