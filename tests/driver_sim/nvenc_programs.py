"""Programs for the encoder's tests: what they begin with, where they run, and what the driver was told by them."""

from .scenario import Scenario, machine
from .simulated_driver import Ran, run_simulated

__all__ = ["BLACKWELL", "PRELUDE", "WORKSTATION", "lines", "ran", "settings_told"]

WORKSTATION = Scenario(machine=machine("rtx-4090"))
BLACKWELL = Scenario(machine=machine("mixed-200", "blackwell-1"))
PRELUDE = """
import json, sys
import PyNvVideoCodec as nvc
from tests.driver_sim.nvenc_pictures import HEIGHT, WIDTH, DevicePicture, luma, nv12, packed

def encoder(codec="h264", surface="NV12", host=True, **settings):
    return nvc.CreateEncoder(WIDTH, HEIGHT, surface, host, codec=codec, **settings)

def encoded(session, pictures):
    return [packet for picture in pictures for packet in session.Encode(picture)] + session.EndEncode()

"""


def ran(program: str, scenario: Scenario = WORKSTATION, *arguments: str, timeout_s: float = 60) -> Ran:
    """Run a program under the simulated driver; it must end well."""
    result = run_simulated(PRELUDE + program, scenario, arguments=arguments, timeout_s=timeout_s)
    assert result.exit_code == 0, result.stderr
    return result


def lines(program: str, scenario: Scenario = WORKSTATION, *arguments: str) -> list[str]:
    """Return what a program printed, line by line."""
    return ran(program, scenario, *arguments).stdout.splitlines()


def settings_told(result: Ran, function: str = "NvEncInitializeEncoder") -> dict[str, str]:
    """Return every field that arrived at the driver, by the header's name."""
    return {name: value for line in result.told(function) for name, value in line.values.items()}
