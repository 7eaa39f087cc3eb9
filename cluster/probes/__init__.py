"""Probes that find out what a machine's GPUs and codecs can do, and the reports of the results."""
