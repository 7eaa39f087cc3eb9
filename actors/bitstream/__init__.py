"""Parsers of codec bitstreams: access points, packet headers, parameter sets, picture sizes."""
