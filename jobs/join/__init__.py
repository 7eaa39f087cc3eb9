"""Joins segments into one exact file: times the packets, adds the other tracks, proves the file and publishes it."""
