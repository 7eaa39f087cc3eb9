"""Ladders of a recording in progress: its segments are published as they become complete."""
