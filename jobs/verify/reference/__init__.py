"""What the pictures of an output should be, worked out a second time."""
