"""What is looked at and reported: by `shardpost doctor`, by the audit, and by the watch.

Nothing that is looked at is changed.
"""
