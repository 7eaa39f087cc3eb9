"""Probes Jetson modules: GPU, memory and DLAs."""
