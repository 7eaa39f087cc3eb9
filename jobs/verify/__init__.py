"""Compares an output with its source, independently of the code that made the output."""
