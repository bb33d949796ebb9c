"""Sweeping a partition of dead letters: what is there, what is due, in which order it goes."""
