"""Queries vGPUs through NVML, on the host and in the guest."""
