"""Batches of pictures as tensors: which numbers they hold, on the host or a device, and in whose memory."""
