"""A job's events, warnings and report."""
