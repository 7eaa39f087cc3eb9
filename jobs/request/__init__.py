"""Requests: specs, spec files, presets, configuration and their values."""
