"""A warm fleet: a host that waits for the next program of its user, and serves several at once."""
