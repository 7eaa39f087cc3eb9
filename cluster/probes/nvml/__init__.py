"""What NVML says of a GPU."""
