"""The whole product on a simulated GPU: a film decoded on NVDEC by a worker of a private Ray, and encoded beside it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import simulated_environment

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed"),
]

OPTIONS = ("--codec", "h264", "--preset", "1", "--segment-seconds", "2", "--workers", "2", "--overwrite")


def transcode(
    film: Path, output: Path, device: str, faults: Sequence[Fault] = ()
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the command line on a machine with one simulated GPU; return how it ended, and its report."""
    folder = output.parent / "simulation"
    folder.mkdir(exist_ok=True)
    scenario = Scenario(machine=machine("rtx-4090"), faults=tuple(faults))
    simulated = simulated_environment(scenario, folder, shared_state=True)
    report = output.with_suffix(".json")
    command = [sys.executable, "-m", "codecfleet", "transcode", str(film), str(output), "--device", device, *OPTIONS]
    done = subprocess.run(
        [*command, "--report", str(report)],
        env={**os.environ, **simulated},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done, json.loads(report.read_text(encoding="utf-8")) if done.returncode == 0 else {}


def sha256(path: Path) -> str:
    """Return a file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_nvdec_gives_the_bytes_that_software_gives(film: Path, tmp_path: Path) -> None:
    """Every segment is decoded on the device, and the output is the same to the last byte."""
    done, report = transcode(film, tmp_path / "gpu.mp4", "gpu")
    assert done.returncode == 0, done.stderr
    assert {segment["decoded_by"] for segment in report["segments"]} == {"nvdec"}
    assert report["warnings"] == []
    assert "NVDEC decoded" in done.stdout
    plain, in_software = transcode(film, tmp_path / "cpu.mp4", "cpu")
    assert plain.returncode == 0, plain.stderr
    assert {segment["decoded_by"] for segment in in_software["segments"]} == {"software"}
    assert sha256(tmp_path / "gpu.mp4") == sha256(tmp_path / "cpu.mp4")


def test_a_picture_that_nvdec_spoils_is_decoded_again_in_software(film: Path, tmp_path: Path) -> None:
    """The driver's word that a picture is wrong is heard, told in the report, and not in the output."""
    spoilt = Fault(function="cuvidDecodePicture", action=Action.CORRUPT, call=20)
    done, report = transcode(film, tmp_path / "gpu.mp4", "gpu", [spoilt])
    assert done.returncode == 0, done.stderr
    reasons = {segment["fallback"] for segment in report["segments"]} - {""}
    assert reasons == {"NVDEC could not decode every picture, of this source or of one beside it"}
    assert "fallback" in {warning["code"] for warning in report["warnings"]}
    _, in_software = transcode(film, tmp_path / "cpu.mp4", "cpu")
    assert in_software
    assert sha256(tmp_path / "gpu.mp4") == sha256(tmp_path / "cpu.mp4")


def test_a_gpu_that_cannot_be_had_is_refused(tmp_path: Path, shared_media: Path) -> None:
    """Interlaced pictures are not NVDEC's to decode: who insists on a GPU hears why."""
    film = shared_media / "cam_h264_interlaced_opengop_360i.mp4"
    done, _ = transcode(film, tmp_path / "gpu.mp4", "gpu")
    assert done.returncode == 4
    assert "--device gpu cannot be had" in done.stderr
    assert "interlaced" in done.stderr
    assert "Traceback" not in done.stderr
