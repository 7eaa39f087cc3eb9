"""Processes beside a worker that run part of its work: a GPU's second process, and those in which work runs alone."""
