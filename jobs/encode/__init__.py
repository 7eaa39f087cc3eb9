"""Arrays encoded to a video."""
