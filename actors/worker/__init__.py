"""A worker: the host of one device's sessions, and the processes beside it that run part of its work."""
