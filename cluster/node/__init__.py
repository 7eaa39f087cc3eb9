"""Makes this machine a node of a Ray cluster: what it offers, how it starts and ends."""
