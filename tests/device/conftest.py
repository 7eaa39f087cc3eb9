"""Tests that need a real GPU: they are skipped, with the reason, where there is none or the simulator stands for it."""

import importlib

import pytest

from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.errors import DeviceError


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """The GPU that this process sees."""
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
