"""Batches: many files, with their states in a database from which a killed batch continues."""
