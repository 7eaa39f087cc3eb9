"""What an operator asks of a cluster: its nodes, and its supervisor."""
