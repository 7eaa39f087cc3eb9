"""All GPUs of a machine: probed once, and polled for health."""
