"""What jobs see of the machines: the pool, and where it is found."""
