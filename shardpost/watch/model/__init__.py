"""What one look finds, and what follows from it, as pure values."""
