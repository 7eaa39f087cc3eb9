"""CUDA contexts, streams, memory and kernels."""
