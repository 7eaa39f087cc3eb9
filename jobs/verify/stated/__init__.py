"""Reads a container's own boxes and elements, independently of FFmpeg."""
