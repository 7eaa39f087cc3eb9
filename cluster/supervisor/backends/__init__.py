"""Backends: a Ray cluster, an embedded Ray, or this machine alone."""

from .backend import ClusterBackend

__all__ = ["ClusterBackend"]
