"""Ladders: one input, decoded once, gives several renditions and a package for players."""
