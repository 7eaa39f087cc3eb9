"""CUDA on this machine: the driver, the runtime, and whether they fit together."""
