"""Queries vGPUs through NVML, on a host and in a guest."""
