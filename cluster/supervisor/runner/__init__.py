"""The supervisor's process: carries decisions out on Ray."""

from .backend import ClusterBackend

__all__ = ["ClusterBackend"]
