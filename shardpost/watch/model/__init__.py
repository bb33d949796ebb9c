"""What is measured, what follows from it, and the tables that keep it; pure."""
