"""Jetson modules: their GPU, memory and DLAs."""
