"""Writes and reads the boxes of CMAF tracks, and derives codec strings from them."""
