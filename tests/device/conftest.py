"""Tests that need a real GPU; they are skipped, with the reason, if there is no GPU or only the simulator."""

import importlib

import pytest

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.errors import DeviceError


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """The GPU of this process."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        pytest.skip(f"cuda-python is not installed: {error}")
    try:
        found = Cuda(driver)
    except DeviceError:
        pytest.skip("no NVIDIA driver answers here")
    _, name = driver.cuDeviceGetName(128, driver.cuDeviceGet(0)[1])
    if b"(simulated)" in name:
        pytest.skip("the driver is the simulator, which runs no kernels")
    return found
