"""The host: a process of its own that holds Ray's driver for a fleet, and ends with it."""
