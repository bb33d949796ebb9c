"""Who holds: positions, clients and exchanges compacted into tables, and the changes published."""
