"""The GPU that this process sees, real or simulated, for tests that compare it with the fakes."""

from importlib import import_module
from typing import Any

import pytest

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.errors import DeviceError


def visible_gpu() -> tuple[Cuda, Any]:
    """Return CUDA on that GPU and PyNvVideoCodec; skip the test if one of them is missing."""
    driver: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")
    try:
        cuda = Cuda(driver)
    except DeviceError:
        pytest.skip("no NVIDIA driver answers here")
    pytest.importorskip("PyNvVideoCodec", reason="PyNvVideoCodec is not installed")
    return cuda, import_module("PyNvVideoCodec")
