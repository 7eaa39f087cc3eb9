"""A network run over every picture of a video."""
