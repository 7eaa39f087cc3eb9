"""A worker: the process that runs work on one device, and the processes beside it that run part of its work."""
