"""The supervisor: leases a cluster's workers to jobs."""
