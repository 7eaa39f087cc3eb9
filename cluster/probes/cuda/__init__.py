"""CUDA's driver, runtime and compatibility."""
