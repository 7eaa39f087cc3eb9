"""NVDEC sessions, and what they can decode."""
