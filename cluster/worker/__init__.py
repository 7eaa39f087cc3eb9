"""The interface of a worker to its callers, and the programs of worker processes."""
