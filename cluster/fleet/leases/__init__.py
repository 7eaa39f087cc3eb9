"""The pool with leases: the client side of the supervisor."""
