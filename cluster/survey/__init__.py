"""Asking the nodes of a cluster what they have."""
