"""Commands as Ray jobs: handed to a cluster's job server, followed, and found again."""
