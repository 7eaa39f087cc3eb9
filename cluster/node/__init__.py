"""This machine as a node of a Ray cluster: the resources that it offers, its start and its end."""
