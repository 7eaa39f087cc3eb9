"""Runs probes in child processes, with a time limit."""
