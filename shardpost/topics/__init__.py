"""The topics that Shardpost reads and writes: how they are declared and created."""
