"""The process on a device, as a Ray actor."""
