"""The commands about what is set once: ``config`` and ``presets``."""
