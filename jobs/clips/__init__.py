"""Clips of films for learning: the frames of each clip, the order of clips, and the process that reads each clip."""
