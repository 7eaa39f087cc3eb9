"""``encode`` turns a caller's pictures into one video file."""
