"""Runs a transcode job, from plan to report."""
