"""Lets workers on other machines read local files of a job's machine."""
