"""Containers: opening, demuxing, seeking, timestamps, and the values that describe streams."""
