"""The weekly e-mail: one per client, listing its positions as of the end of the week."""
