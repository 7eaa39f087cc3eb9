"""An operator's requests to a cluster's nodes and supervisor."""
