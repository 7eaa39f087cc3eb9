"""Reaching a Ray cluster, or starting a private one."""
