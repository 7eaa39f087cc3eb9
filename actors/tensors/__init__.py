"""Batches of pictures as tensors: which numbers the tensors hold, and in which memory, on the host or a device."""
