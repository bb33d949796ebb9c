"""Who works on what: locks, which are claims on a store, and files that machines share."""
