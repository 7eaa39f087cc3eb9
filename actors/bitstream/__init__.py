"""What codecs write: access points, packet headers, parameter sets, picture sizes."""
