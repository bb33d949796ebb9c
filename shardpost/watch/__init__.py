"""What `shardpost doctor`, the audit and the watch look at and report, and never change."""
