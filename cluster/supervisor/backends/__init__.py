"""Backends: a Ray cluster, a private Ray, or this machine alone."""

from .backend import ClusterBackend

__all__ = ["ClusterBackend"]
