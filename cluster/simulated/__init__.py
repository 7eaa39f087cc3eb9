"""Simulated fleets, which are described by files."""
