"""The command ``batch``."""

from .command import COMMANDS

__all__ = ["COMMANDS"]
