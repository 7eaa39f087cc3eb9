"""Clips of films for learning: which frames, in which order, by which process."""
