"""Findings about machines, and their output as text or JSON."""
