"""What is kept and what is removed: values in, decisions out."""
