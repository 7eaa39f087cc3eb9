"""What a job tells: events, warnings, the report."""
