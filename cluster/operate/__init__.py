"""An operator's requests to a cluster: its nodes, and its supervisor."""
