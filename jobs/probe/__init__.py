"""What is in a file, for people and programs."""
