"""Who works on what: locks, files that machines share, and why the last run was refused."""
