"""Decides the number of nodes in each group of a cluster, with pure functions over frozen values."""
