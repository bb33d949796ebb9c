"""A package, so that its tests share one stack, and it goes when they are done."""
