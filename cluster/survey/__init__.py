"""Asks the nodes of a cluster for their devices."""
