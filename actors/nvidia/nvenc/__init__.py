"""NVENC sessions, and their closed table of settings."""
