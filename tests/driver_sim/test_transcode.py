"""The whole product on a simulated GPU: a worker of a private Ray decodes on NVDEC, and software or NVENC encodes."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from codecfleet import Fleet, TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import needs, simulated_environment

pytestmark = [
    pytest.mark.ray,
    needs("PyNvVideoCodec"),
]

OPTIONS = ("--preset", "1", "--segment-seconds", "2", "--workers", "2", "--overwrite")


HYBRID = "--codec h264 --device gpu --encoder software"
FRAMES = 120
SEAM_PICTURES = 2
"""How many pictures each side of a cut hashes; only these are copied to the host."""


def transcode(
    film: Path,
    output: Path,
    options: str,
    faults: Sequence[Fault] = (),
    *,
    is_ray_first: bool = True,
    fleet: str = "rtx-4090",
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the command line on the simulated first machine of a fleet; return the process and the report."""
    folder = output.parent / "simulation"
    folder.mkdir(exist_ok=True)
    scenario = Scenario(machine=machine(fleet), faults=tuple(faults))
    simulated = simulated_environment(scenario, folder, shared_state=True)
    report = output.with_suffix(".json")
    command = [sys.executable, "-m", "codecfleet", "transcode", str(film), str(output), *options.split(), *OPTIONS]
    done = subprocess.run(
        [*command, "--report", str(report)],
        env={**os.environ, **simulated, "CODECFLEET_RAY": "first" if is_ray_first else ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done, json.loads(report.read_text(encoding="utf-8")) if done.returncode == 0 else {}


def sha256(path: Path) -> str:
    """Return a file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small clip of 5 s; software encodes it on the cores of this machine."""
    made = Clip(times=constant_times(FRAMES), width=320, height=176, options=(("x264-params", "keyint=24:scenecut=0"),))
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", made)


async def in_software(film: Path, output: Path) -> str:
    """Encode a film in software, in this process, with the options of ``transcode``; return the output's SHA-256."""
    spec = TranscodeSpec(
        source=str(film), output=str(output), codec="h264", device="cpu", preset=1, segment_s=Fraction(2), workers=2
    )
    async with Fleet(pool=LocalPool()) as fleet:
        report = await (await fleet.transcode(spec))
    assert {segment.decoded_by for segment in report.segments} == {"software"}
    return sha256(output)


async def test_nvdec_gives_the_bytes_that_software_gives(clip: Path, tmp_path: Path) -> None:
    """Every segment is decoded on the device, and the output is the same to the last byte."""
    done, report = transcode(clip, tmp_path / "gpu.mp4", HYBRID)
    assert done.returncode == 0, done.stderr
    assert {segment["decoded_by"] for segment in report["segments"]} == {"nvdec"}
    assert report["warnings"] == []
    assert "NVDEC decoded" in done.stdout
    assert sha256(tmp_path / "gpu.mp4") == await in_software(clip, tmp_path / "cpu.mp4")


def counted(output: Path, function: str) -> int:
    """Return how many times the run that wrote ``output`` called a function of the driver."""
    lines = (output.parent / "simulation" / "trace").read_text(encoding="utf-8").splitlines()
    return sum(line.split(maxsplit=1)[0] == function for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_a_film_is_decoded_and_encoded_on_one_device(clip: Path, tmp_path: Path, codec: str) -> None:
    """By default the GPU does all the work if that is faster; the output is exact, and pictures stay on the GPU."""
    output = tmp_path / "gpu.mp4"
    done, report = transcode(clip, output, f"--codec {codec}")
    assert done.returncode == 0, done.stderr
    assert report["encoder_kind"].startswith(f"{codec}_nvenc PyNvVideoCodec-")
    assert f"{codec}_nvenc encoded" in done.stdout
    assert {segment["decoded_by"] for segment in report["segments"]} == {"nvdec"}
    assert report["warnings"] == []
    assert report["frames"] == FRAMES
    seams = len(report["segments"]) - 1
    assert counted(output, "cuMemcpyDtoHAsync") == 2 * seams * SEAM_PICTURES + SEAM_PICTURES
    assert counted(output, "cuMemcpyHtoDAsync") == 0
    checked = subprocess.run(
        [sys.executable, "-m", "codecfleet", "verify", str(clip), str(output)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert f"complete: {FRAMES} frames" in checked.stdout


@pytest.mark.slow
def test_what_software_decodes_for_nvenc_gives_the_same_bytes(clip: Path, tmp_path: Path) -> None:
    """A picture that NVDEC spoils is decoded in software, copied to the device, and encoded to the same bytes."""
    done, report = transcode(clip, tmp_path / "nvdec.mp4", "--codec h264 --encoder nvenc")
    assert done.returncode == 0, done.stderr
    spoilt = [Fault(function="cuvidDecodePicture", action=Action.CORRUPT, call=call) for call in (20, 90)]
    done, mixed = transcode(clip, tmp_path / "mixed.mp4", "--codec h264 --encoder nvenc", spoilt)
    assert done.returncode == 0, done.stderr
    assert {segment["decoded_by"] for segment in mixed["segments"]} >= {"software"}
    assert mixed["encoder_kind"] == report["encoder_kind"]
    assert sha256(tmp_path / "mixed.mp4") == sha256(tmp_path / "nvdec.mp4")


@pytest.mark.parametrize("codec", swept(["h264", "hevc", "av1"]))
def test_nvenc_searches_for_a_quality(clip: Path, tmp_path: Path, codec: str) -> None:
    """Pictures are measured in host memory; each segment has its own CQ, in at most four encodes."""
    output = tmp_path / "target.mp4"
    done, report = transcode(clip, output, f"--codec {codec} --encoder nvenc --target-quality psnr:44")
    assert done.returncode == 0, done.stderr
    assert report["encoder_kind"].startswith(f"{codec}_nvenc PyNvVideoCodec-")
    assert " target=psnr:44:crf1-" in report["encoder_kind"]
    assert report["frames"] == FRAMES
    assert report["quality"]["reached"] == pytest.approx(44, abs=0.5)  # CQ has whole steps
    assert all(1 < segment["quality"]["encodes"] <= 4 for segment in report["segments"])


@pytest.mark.parametrize(("fleet", "encoder"), [("rtx-4090", "libx264"), ("l4-x4", "h264_nvenc")])
def test_a_gpu_that_was_lost_before_ray_starts(fleet: str, encoder: str, clip: Path, tmp_path: Path) -> None:
    """The machine's other GPUs work; without another one, the job runs in software."""
    lost = [Fault(function="nvmlDeviceGetUUID", action=Action.LOSE, call=1)]
    done, report = transcode(clip, tmp_path / "auto.mp4", "--codec h264", lost, fleet=fleet)
    assert done.returncode == 0, done.stderr
    assert report["encoder_kind"].startswith(encoder)


@pytest.mark.slow
@pytest.mark.timeout(600)  # workers that die five times, twice: 160 s on busy cores
def test_the_only_gpu_is_lost(clip: Path, tmp_path: Path) -> None:
    """A job that requires the GPU ends soon with the reason; any other job restarts in software."""
    lost = [Fault(function="cuvidDecodePicture", action=Action.LOSE, call=20)]
    for options in ("--codec h264 --encoder nvenc", HYBRID):
        done, _ = transcode(clip, tmp_path / "required.mp4", options, lost)
        assert done.returncode == 5
        (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
        died = "every GPU's worker process died 5 times in a row: it did not start: " in line
        is_lost = "the NVIDIA driver does not list it: nvmlDeviceGetUUID answered GPU_IS_LOST (15)" in line
        # The health poll may see Xid 79, or a worker may lose the device: in both cases the GPU is quarantined early.
        assert died or "no GPU became available for it within" in line, line
        assert is_lost or (not died and "Xid 79" in line), line
        assert "Run `codecfleet doctor`" in line
        assert not (tmp_path / "required.mp4").exists()
        (tmp_path / "simulation" / "state").unlink()  # another machine
    done, report = transcode(clip, tmp_path / "auto.mp4", "--codec h264", lost)
    assert done.returncode == 0, done.stderr
    assert report["encoder_kind"].startswith("libx264")
    (reason,) = [warning["message"] for warning in report["warnings"] if warning["code"] == "encoder"]
    causes = ("every GPU's worker process died", "no GPU became available for it within")
    assert reason.startswith(tuple(f"software encodes the track from its start: {cause}" for cause in causes))
