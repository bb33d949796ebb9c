"""Positions from elsewhere: a full list, compared with what is open, as records."""
