"""The processing of one segment: decode, filter, encode."""
