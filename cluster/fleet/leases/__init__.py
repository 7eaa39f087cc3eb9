"""The pool that leases workers from a supervisor."""
