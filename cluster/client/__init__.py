"""The client side: pools of workers, and leases on their slots."""
