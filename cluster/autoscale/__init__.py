"""How many nodes of which group a cluster should have: pure functions over frozen values."""
