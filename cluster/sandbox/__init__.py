"""Confines a command's processes: they can open only certain files, and no sockets."""
