"""Still pictures of a video: which pictures are on screen at given times, upright and in colour, as files."""
