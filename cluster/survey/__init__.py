"""Asks the nodes of a cluster about their devices."""
