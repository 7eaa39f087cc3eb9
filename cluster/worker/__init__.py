"""A worker as its callers see it, and the programs that host one."""
