"""Transforms: a list, what is open, and the difference between them."""
