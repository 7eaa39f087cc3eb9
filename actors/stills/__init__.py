"""Stills of a video: the pictures on screen at given times, as files."""
