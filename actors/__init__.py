"""Floor 1: decodes, converts and encodes media on one device; it knows nothing of jobs or clusters."""
