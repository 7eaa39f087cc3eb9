"""Turns a job's request for an encoder into exact settings, or refuses it."""
