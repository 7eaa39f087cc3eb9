"""Many files: what to do with each, what has become of it, and going on after a death."""
