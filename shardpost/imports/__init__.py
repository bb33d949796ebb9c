"""Inputs from elsewhere: a list, compared with what is open, as records."""
