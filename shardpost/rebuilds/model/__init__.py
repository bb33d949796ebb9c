"""What a rebuild is, and what the two sides of it differ in."""
