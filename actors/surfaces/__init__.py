"""Pictures on the host or on a device: formats, memory layouts, and the objects that hold pictures."""
