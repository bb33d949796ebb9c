"""The maintenance of the tables: what is kept, and removing what no kept snapshot needs."""
