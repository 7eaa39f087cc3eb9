"""NVENC sessions, and the fixed set of settings that they accept."""
