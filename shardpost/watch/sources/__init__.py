"""What is measured, one module for each thing; none changes anything."""
