"""A durable queue of commands: its jobs, its stores, and the drivers that run them. docs/queue.md describes it."""
