"""A worker's device, its sessions, and the work that it runs."""
