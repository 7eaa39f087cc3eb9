"""Stills of a video: thumbnails at given times or of scenes, sprite sheets, and an index of both."""
