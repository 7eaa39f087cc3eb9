"""Surfaces of random samples, and small conversions of them."""

import numpy as np
from numpy.typing import NDArray

from codecfleet.actors.surfaces.conversion import Conversion
from codecfleet.actors.surfaces.formats import SurfaceFormat
from codecfleet.actors.surfaces.host_pictures import planar_picture, plane_samples
from codecfleet.actors.surfaces.host_scaling import source_bytes
from tests.device.conversion_cases import FORMATS

Planes = list[NDArray[np.int64]]


def planes_of(surface: NDArray[np.uint8], format_: SurfaceFormat, size: tuple[int, int]) -> Planes:
    """Return a surface's samples without padding, by converting to FFmpeg's planar picture."""
    name = next(name for name, each in FORMATS.items() if each == format_)
    picture = planar_picture(surface, format_, *size, name)
    return [samples.astype(np.int64) for samples in plane_samples(picture, format_)]


def random_surface(conversion: Conversion, seed: int) -> NDArray[np.uint8]:
    """Return a surface of noise."""
    return np.random.default_rng(seed).integers(0, 256, source_bytes(conversion), dtype=np.uint8)
