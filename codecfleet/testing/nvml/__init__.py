"""A simulated NVML."""
