"""This machine as a node of a Ray cluster: what it offers, and how it starts and ends."""
