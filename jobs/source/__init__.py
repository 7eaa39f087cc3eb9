"""What is in a source: its tracks, and the index of its video."""
