"""The simulated H200 is compared with the recorded answers of a real H200 (tests/fixtures).

NVML's answers, NVDEC's capabilities, and the package's messages for missing engines are compared. Answers that cannot
be compared are listed here with their reasons.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from codecfleet.cluster.probes.report.engines import MediaCodec
from codecfleet.errors import EngineUnfit
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .scenario import SIMULATED, Scenario, machine
from .simulated_driver import needs, run_simulated

RECORDED: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "h200-580.159.04.json").read_text(encoding="utf-8")
)
BESIDE: Final = {
    "it is another board": r"\.(uuid|pci_bus_id|name)|\.facts\.(serial|board_part_number|vbios_version|inforom_.*)",
    "it was measured in that moment": (
        r"\.memory\.(free|used)_bytes|\.facts\.(energy_j|power_w|temperature(_sensor)?_c|pcie_(sent|received)_kb_per_s"
        r"|clock_(graphics|sm|video|memory)_mhz|clocks_(event|throttle)_reasons)"
    ),
    "the simulator has one clock for all, and one temperature": (
        r"\.facts\.(clock_applications_.*|clock_max_memory_mhz|temperature_(shutdown|slowdown)_c)"
    ),
    "the simulator's memory has a whole number of stacks": r"\.facts\.memory_bus_bits",
    "the simulator names two more reasons to slow down": r"\.facts\.clocks_throttle_reasons_supported",
    "the recorded report is older than the question": r"\.facts\.brand",
}
"""Fields of a device's report that differ, with the reasons."""

PROBE = """
import sys, pynvml
from pydantic import TypeAdapter
from codecfleet.cluster.probes.gpus.devices import NvmlReport, probe_nvml
sys.stdout.buffer.write(TypeAdapter(NvmlReport).dump_json(probe_nvml(pynvml)))
"""
CAPABILITIES = """
import json, sys
import PyNvVideoCodec as nvc
names = {"4:2:0": "420", "4:2:2": "422", "4:4:4": "444"}
def caps(codec, chroma, bits):
    found = nvc.GetDecoderCaps(gpuid=0, codec=getattr(nvc.cudaVideoCodec, codec), bitdepth=bits,
                               chromaformat=getattr(nvc.cudaVideoChromaFormat, names[chroma]))
    return [found["num_decoder_engines"], found["width_max"], found["height_max"]]
print(json.dumps([caps(*case) for case in json.loads(sys.argv[1])]))
"""
WORDS = """
import json, sys
import numpy as np
import PyNvVideoCodec as nvc
from codecfleet.actors.nvidia.nvenc.errors import EncoderEvidence, nvenc_error
from codecfleet.actors.nvidia.nvdec.session import mapped
from codecfleet.errors import DeviceError

def decoded():
    data = np.fromfile(sys.argv[1], np.uint8)
    packet = nvc.PacketData()
    packet.bsl, packet.bsl_data = data.size, data.ctypes.data
    decoder = nvc.CreateDecoder(gpuid=0, codec=nvc.cudaVideoCodec.AV1)
    decoder.Decode(packet)

def said(call, ours):
    try:
        call()
    except Exception as error:
        try:
            raise ours(error)
        except DeviceError as mapped:
            return [type(error).__name__, str(error), type(mapped).__name__, mapped.message]

evidence = EncoderEvidence(opening=True, own_sessions=0, needed_bytes=1, free_bytes=2)
print(json.dumps([
    said(lambda: nvc.GetEncoderCaps(gpuid=0, codec="h264"), lambda error: nvenc_error(error, evidence)),
    said(lambda: nvc.CreateEncoder(320, 240, "NV12", True), lambda error: nvenc_error(error, evidence)),
    said(decoded, lambda error: mapped(error, "NVDEC opens no session")),
]))
"""
NAMES: Final = {MediaCodec.MPEG2: "MPEG2", MediaCodec.JPEG: "JPEG"}

needs_package = needs("PyNvVideoCodec")


def h200() -> Scenario:
    """Return the simulated machine with one GPU, as the recorded machine had."""
    node = machine("h200-l40s", "h200")
    return Scenario(machine=replace(node, devices=node.devices[:1]))


def printed(program: str, *arguments: str) -> Any:
    """Run a program on the machine; return its output."""
    ran = run_simulated(program, h200(), arguments=arguments)
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each answer of a report by its path; a missing answer is given as its kind and reason."""
    if isinstance(value, dict) and "absence" not in value:
        for key, each in value.items():
            yield from flat(each, f"{path}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from flat(each, f"{path}[{number}]")
    elif isinstance(value, dict):
        yield path, (value["absence"], value["reason"].partition(":")[0])  # the words after the colon are ours
    else:
        yield path, value


def test_nvml_answers_as_the_real_one_did() -> None:
    """Each answer of a device's report equals the recorded one, reasons for absence included, or is excused."""
    simulated, real = printed(PROBE), RECORDED["nvml"]
    for name in ("driver_version", "cuda_driver_version", "library_problem"):
        assert simulated[name] == real[name]
    ours, theirs = (dict(flat(report["devices"][0])) for report in (simulated, real))
    differing = {path for path in ours.keys() | theirs.keys() if ours.get(path, "-") != theirs.get(path, "-")}
    excused = re.compile("|".join(BESIDE.values()))
    unexplained = {path: (ours.get(path), theirs.get(path)) for path in differing if not excused.fullmatch(path)}
    assert unexplained == {}
    assert len(theirs) - len(differing) > 200
    assert ours[".name"] == f"{theirs['.name']}{SIMULATED}"


@needs_package
def test_nvdec_can_what_the_real_one_can() -> None:
    """The simulated NVDEC has the real one's engines and largest size for each recorded codec, sampling and depth."""
    trials = [each for each in RECORDED["devices"][0]["trials"] if each["engine"] == "nvdec"]
    cases = [each["case"] for each in trials]
    asked = [[NAMES.get(MediaCodec(c["codec"]), c["codec"].upper()), c["chroma"], c["bit_depth"]] for c in cases]
    told = [[each["engines"], each["max_width"] or 0, each["max_height"] or 0] for each in trials]
    found = printed(CAPABILITIES, json.dumps(asked))
    assert len(asked) > 12
    assert {tuple(case): answer for case, answer in zip(map(tuple, asked), found, strict=True)} == {
        tuple(case): answer for case, answer in zip(map(tuple, asked), told, strict=True)
    }


@needs_package
def test_missing_engines_are_told_in_the_same_words(tmp_path: Path) -> None:
    """The package's exceptions for missing NVENC or AV1, in the real H200's words, become ``EngineUnfit``."""
    clip = Clip(times=constant_times(3), encoder="libsvtav1", options=(("preset", "12"),), width=192, height=160)
    stream = make_clip(tmp_path / "clip.obu", clip)
    asked, made, decoded = printed(WORDS, str(stream))
    for kind, text, ours, message in (asked, made):
        assert kind == "PyNvVCException"
        assert "nvEncOpenEncodeSessionEx" in text
        assert "returned error 2" in text
        assert (ours, message) == (EngineUnfit.__name__, "this GPU has no encoder (NVENC status 2)")
    kind, text, ours, message = decoded
    assert kind == "PyNvVCExceptionUnsupported"
    assert text.startswith("HandleVideoSequence")
    assert "Error code : 801" in text
    assert "Codec not supported on this GPU" in text
    assert ours == EngineUnfit.__name__
    assert "801" in message
