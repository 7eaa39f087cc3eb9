"""Still pictures of a video: the pictures on screen at given times, upright and in colour, as files."""
