"""What `shardpost doctor`, the audit and the watch check and report; they change nothing."""
