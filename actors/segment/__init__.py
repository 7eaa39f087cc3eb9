"""One segment's way through a process: decode, filter, encode."""
