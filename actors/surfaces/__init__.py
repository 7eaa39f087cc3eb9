"""Pictures on the host or on a device: their formats, their memory layouts, and the values that hold them."""
