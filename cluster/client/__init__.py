"""What jobs see of a fleet: a pool of workers, and leases on their slots."""
