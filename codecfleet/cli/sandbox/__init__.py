"""Confining a command: what it may open, and the step itself."""
