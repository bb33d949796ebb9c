"""The topic `decisions`: what a person decided, or Shardpost on a person's behalf."""
