"""Stills of a video: thumbnails at times or of scenes, sprite sheets, and an index of both."""
