"""Connects to a Ray cluster, or starts a private Ray."""
