"""What the supervisor counts and measures for monitoring: the table of metrics, and samples of its state and events."""
