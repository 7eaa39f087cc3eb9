"""A worker: a process that runs work on one device, and its helper processes."""
