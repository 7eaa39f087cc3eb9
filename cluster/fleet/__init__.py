"""The interface between jobs and machines: the pool, and how a fleet gets one."""
