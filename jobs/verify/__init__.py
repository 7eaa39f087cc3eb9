"""Compares two files, independently of the code that made them."""
