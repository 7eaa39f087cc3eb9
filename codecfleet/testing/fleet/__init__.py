"""Simulated fleets, workers and pools."""
