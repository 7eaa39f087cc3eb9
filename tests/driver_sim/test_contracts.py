"""Runs the tests of tests/contract on the driver simulator, with NVIDIA's own packages; all must pass."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.sweeps import swept

from .scenario import Scenario, machine
from .simulated_driver import run_simulated
from .test_dla import scenario as orin

CONTRACT = """
import os, sys, pytest
kept = {name: value for name, value in os.environ.items() if name.startswith("DRIVER_SIM")}
class Keep:
    '''Puts back what the tests' own configuration takes from the environment.'''
    def pytest_collection(self):
        os.environ.update(kept)
sys.exit(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Keep()]))
"""


@dataclass(frozen=True, slots=True)
class Contract:
    """The tests of modules that match ``only``, on a machine whose devices ``visible`` are seen."""

    modules: tuple[str, ...]
    scenario: Scenario
    calls: tuple[str, ...]  # functions of the simulated libraries that the tests must have called
    only: str = ""
    visible: str | None = None
    package: str = "cuda"  # NVIDIA's package without which the tests are skipped

    def __str__(self) -> str:
        return f"{' and '.join(self.modules)} on {self.scenario.machine.name}"

    @property
    def is_for_later(self) -> bool:
        """Whether CI leaves the contract out: NVML on all machines but one, and what resembles other cases."""
        return self.only.endswith((f"and ({OTHER_FORMATS})", f"and ({OTHER_CLIPS})")) or (
            self.package == "pynvml" and self.scenario.machine != CUT
        )


CUT = machine(Path(__file__).with_name("parts.toml"), "cut")
L4 = Scenario(machine=machine("l4-x4"))
BLACKWELL = Scenario(machine=machine("mixed-200", "blackwell-1"))
STANDALONE = ("cudlaImportExternalMemory", "cudlaImportExternalSemaphore", "NvSciSyncFenceWait", "cudlaTask")
CODEC = "PyNvVideoCodec"
NVDEC = "nvdec and not fake"
NVENC = "nvenc and not fake"
OTHER_FORMATS = "h264-yuv420p10le or av1-yuv420p10le or yuv444p"
"""Cases that CI leaves out: with 10 bits, it tests only HEVC."""
OTHER_CLIPS = "h264-closed or h264-no-b or h264-colours or h264-edit-list or h264-422 or hevc-open or hevc-12 or vp8"
"""Clips that CI leaves out. It tests open GOPs, uneven times, transport streams, 4:4:4, 10 bits, hidden pictures."""
CONTRACTS = (
    Contract(("test_dla_session", "test_dla_standalone"), orin(), ("cudlaMemRegister", *STANDALONE)),
    Contract(
        ("test_picture_decoder", "test_nvdec_sequences"),
        L4,
        ("cuvidDecodePicture", "cuvidReconfigureDecoder"),
        f"{NVDEC} and not (picture_decoder and ({OTHER_CLIPS}))",
        "0",
        CODEC,
    ),
    Contract(("test_picture_decoder",), L4, ("cuvidDecodePicture",), f"{NVDEC} and ({OTHER_CLIPS})", "0", CODEC),
    *(
        Contract(("test_encoder_session",), BLACKWELL, ("NvEncEncodePicture",), f"{NVENC} and {only}", "1", CODEC)
        for only in (f"not ({OTHER_FORMATS})", f"({OTHER_FORMATS})")
    ),
    *(
        Contract(("test_nvml", "test_nvml_instances"), Scenario(machine=node), ("nvmlInit",), "real", package="pynvml")
        for node in (CUT, machine("vgpu", "hypervisor"), machine("vgpu", "guest-1"), machine("a100-mig"))
    ),
)


@pytest.mark.parametrize(
    "contract",
    swept(CONTRACTS, is_slow=lambda each: each.is_for_later),
    ids=str,
)
def test_the_contract_holds(contract: Contract) -> None:
    """All tests of the contract pass, and every encoder that they opened on the driver is closed."""
    if find_spec(contract.package) is None:
        pytest.skip(f"{contract.package} is not installed")
    ran = run_simulated(
        CONTRACT,
        contract.scenario,
        visible_devices=contract.visible,
        arguments=[
            *(f"tests/contract/{module}.py" for module in contract.modules),
            *(["-k", contract.only] if contract.only else []),
        ],
        timeout_s=110,
    )
    assert ran.exit_code == 0, ran.stdout
    assert "passed" in ran.stdout
    assert [function for function in contract.calls if not ran.calls(function)] == []
    assert len(ran.calls("NvEncOpenEncodeSessionEx")) == len(ran.calls("NvEncDestroyEncoder"))
