"""How fast a device decodes and encodes."""
