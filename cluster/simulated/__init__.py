"""Simulated fleets, described by files."""
