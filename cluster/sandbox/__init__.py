"""Confines a command's processes, which can then open only certain files and no sockets."""
