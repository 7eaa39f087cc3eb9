"""This machine as a node of a Ray cluster: what it offers, how it starts, how it leaves."""
