"""What a job is asked for: specs, spec files, values."""
