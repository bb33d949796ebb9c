"""How far each reader is behind, and when its unread records will be lost."""
