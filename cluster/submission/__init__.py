"""Runs commands as Ray jobs: submits them to a cluster's job server, follows them, and lists them."""
