"""Probes that find out what a machine's GPUs and codecs can do, with reports of the results."""
