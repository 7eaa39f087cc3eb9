"""What a terminal shows while a job runs."""
