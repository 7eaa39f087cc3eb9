"""Joins segments into one exact file: side tracks, times, proof, publishing."""
