"""Runs networks over the pictures of a segment."""

from .layout import pack, unpack
from .network import NetworkSettings, WarmNetworks, read_loadable, warm_networks
from .pictures import PixelRule
from .segments import InferredSegment, InferSegment, NamedTensor

__all__ = [
    "InferSegment",
    "InferredSegment",
    "NamedTensor",
    "NetworkSettings",
    "PixelRule",
    "WarmNetworks",
    "pack",
    "read_loadable",
    "unpack",
    "warm_networks",
]
