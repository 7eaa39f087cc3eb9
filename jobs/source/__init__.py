"""Reads a source: its tracks, the index of its video, and the properties of its pictures."""
