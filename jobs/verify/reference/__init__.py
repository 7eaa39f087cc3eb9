"""The expected pictures of an output, computed independently of the segments' code."""
