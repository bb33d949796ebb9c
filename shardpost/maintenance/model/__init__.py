"""What is kept and what goes: values in, decisions out."""
