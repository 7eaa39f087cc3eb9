"""The interface between jobs and machines: the pool that runs work, and the ways to get a pool."""
