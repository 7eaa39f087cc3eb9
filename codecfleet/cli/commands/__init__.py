"""The commands except ``plan``, ``probe`` and ``verify``; each module is imported when a command in it is named."""
