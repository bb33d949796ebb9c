"""The metrics, each declared once, and the table; pure."""
