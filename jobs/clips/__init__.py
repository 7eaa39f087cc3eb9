"""Clips of films for learning: which frames they have, their order, and the process that reads each."""
