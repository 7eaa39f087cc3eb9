"""Findings about a machine, and the lines in which they are printed."""
