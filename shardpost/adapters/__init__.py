"""One file per outside system."""
