"""Reads a container's own boxes and elements, as a second opinion beside that of FFmpeg."""
