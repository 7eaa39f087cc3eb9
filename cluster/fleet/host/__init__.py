"""The host: a process that holds a pool, for one fleet or, warm, for all programs of its user."""
