"""The entries of a batch: its input files, the names of their outputs, and their options."""
