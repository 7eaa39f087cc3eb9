"""Fleets that a file describes."""
