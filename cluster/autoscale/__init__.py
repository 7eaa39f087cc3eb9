"""The number of nodes in each group of a cluster: pure functions over frozen values."""
