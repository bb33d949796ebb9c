"""What one look finds, and what follows from it.

Pure.
"""
