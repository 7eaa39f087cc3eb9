"""Reads a container's own boxes and elements, as a second opinion beside FFmpeg's."""
