"""The words of the remedies: what each error of CUDA tells a user to do next."""

import pytest

from codecfleet.cluster.probes.cuda.errors import CUDA_ERRORS, cuda_error
from codecfleet.cluster.probes.gpus.devices import nvml_remedy

WORDS = {
    2: ("no memory left", "end a process that holds the device's memory"),
    3: ("kernel module does not answer", "sudo modprobe nvidia"),
    34: ("stub, made for linking only", "take the toolkit's lib64/stubs folder out of LD_LIBRARY_PATH"),
    35: ("older than the CUDA runtime needs", "install a newer driver; codecfleet doctor says which"),
    36: (
        "a function newer than the installed driver",
        "install the driver of the toolkit's own minor version or later",
    ),
    46: ("another process holds the device", "nvidia-smi -c DEFAULT"),
    100: ("no device that this process may see", "look at CUDA_VISIBLE_DEVICES"),
    101: ("CUDA_VISIBLE_DEVICES names one that is not here", "the UUIDs that nvidia-smi -L prints"),
    222: ("PTX that a newer toolkit made", "install a driver of the toolkit's own version"),
    802: ("the fabric manager does not run or has not finished", "sudo systemctl start nvidia-fabricmanager"),
    803: ("kernel driver and the libcuda that was loaded", "restart the machine after a driver upgrade"),
    804: ("a compat libcuda was loaded, and this GPU is none", "take the compat package out of LD_LIBRARY_PATH"),
    805: ("no connection to the MPS control daemon", "unset CUDA_MPS_PIPE_DIRECTORY"),
    806: ("a call to the MPS server failed", "CUDA_MPS_LOG_DIRECTORY"),
    807: ("takes no clients just now", "try again in a moment"),
    808: ("as many client processes as it takes", "use fewer worker processes per device"),
    809: ("connections for MPS clients are used up", "lower CUDA_DEVICE_MAX_CONNECTIONS"),
}
"""By code: what its meaning says, and the step that it names (CUDA Compatibility 2 and 3.3.3)."""

ADVICE_OF_OTHERS = {
    802: ("compat", "LD_LIBRARY_PATH", "modprobe", "CUDA_VISIBLE_DEVICES", "MPS"),
    803: ("fabric", "CUDA_VISIBLE_DEVICES", "MPS"),
    804: ("fabric", "restart", "modprobe", "CUDA_VISIBLE_DEVICES", "MPS"),
}
"""Steps that belong to another error, and would send a user the wrong way."""


@pytest.mark.parametrize("code", sorted(CUDA_ERRORS))
def test_every_error_says_its_own_meaning_and_step(code: int) -> None:
    """No error of CUDA has the words of another."""
    error = cuda_error(code)
    meaning, step = WORDS[code]
    assert meaning in error.meaning
    assert step in error.fix
    assert not [word for word in ADVICE_OF_OTHERS.get(code, ()) if word in error.fix]
    others = [other for other in CUDA_ERRORS.values() if other.code != code]
    assert not [other.code for other in others if meaning in other.meaning]


def test_the_fabric_manager_is_of_the_drivers_version_and_waited_for() -> None:
    """802: the version must be the driver's exactly, and the fabric complete before the next try."""
    fix = cuda_error(802).fix
    assert fix.startswith("install nvidia-fabricmanager of exactly the driver's version")
    assert fix.endswith("wait until nvidia-smi -q shows the Fabric's State as Completed")


def test_forward_compatibility_that_is_refused_leads_to_a_newer_driver() -> None:
    """804: the package is taken out of both places that a loader looks in, and a newer driver is what helps."""
    fix = cuda_error(804).fix
    assert fix.endswith("out of LD_LIBRARY_PATH and ld.so.conf, and install a newer driver instead")


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (9, "sudo modprobe nvidia"),
        (12, "--gpus all"),
        (13, "install a newer NVIDIA driver"),
        (17, "ls -l /dev/nvidia*"),
        (18, "restart the machine"),
    ],
)
def test_an_nvml_that_does_not_start_says_what_to_do(code: int, step: str) -> None:
    """NVML's own codes (driver not loaded, no library, no function, refused, versions that differ) have their steps."""
    assert step in nvml_remedy(code)
    assert nvml_remedy(999) == ""
