"""What `shardpost doctor` looks at: one module per check or group of checks. Nothing is changed."""
