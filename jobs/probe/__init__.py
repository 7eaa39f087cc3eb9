"""Describes the contents of a file as text and as JSON."""
