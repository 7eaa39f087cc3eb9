"""Scaling and pixel conversion on the GPU, and copies to the host."""
