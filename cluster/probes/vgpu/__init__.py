"""What NVML says of vGPUs, on a host and in a guest."""
