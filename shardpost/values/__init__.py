"""Values that settings, commands and records may have; what is set is said in `settings`."""
