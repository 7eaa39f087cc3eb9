"""Lets workers on other machines read local files of the machine on which a job runs."""
