"""Floor 2: the machines, their devices, and the placement of work."""
