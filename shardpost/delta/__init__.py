"""Delta tables without a JVM: declarations, queries, commits, and snapshots over all of them."""
