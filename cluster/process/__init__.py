"""Processes that this one starts, and calls over a pair of Unix sockets."""
