"""Decides which tracks, tags and chapters an output keeps."""
