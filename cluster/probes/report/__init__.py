"""The values that probes return."""
