"""Choosing devices and sessions for demands."""
