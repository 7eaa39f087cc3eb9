"""Software decoding of a range of packets."""
