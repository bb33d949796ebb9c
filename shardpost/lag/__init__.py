"""How far each reader is behind, and when what it has not read will be lost."""
