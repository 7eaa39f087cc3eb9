"""Confining a command's processes: which files they can open, and no socket."""
