"""Tables that are computed anew beside those in use, compared with them, and swapped."""
