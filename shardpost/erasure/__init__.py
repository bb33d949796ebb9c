"""One client erased on demand: what of it goes, what stays and why, and what others must do."""
