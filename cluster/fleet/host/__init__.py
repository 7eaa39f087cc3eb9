"""The host: a process with a pool for one fleet or, as a warm fleet, for all programs of its user."""
