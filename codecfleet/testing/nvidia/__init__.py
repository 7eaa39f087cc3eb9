"""Simulated CUDA, PyNvVideoCodec and cuDLA."""
