"""Values that settings, commands and records may have."""
