"""The pool with leases: the supervisor's client."""
