"""Work begins without Ray on a machine with a GPU; the GPU's worker is started only if that saves time."""

from functools import partial
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip

from . import test_transcode
from .scenario import Action, Fault
from .test_transcode import in_software, sha256

pytestmark = [pytest.mark.ray, pytest.mark.slow]


transcode = partial(test_transcode.transcode, is_ray_first=False)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of two seconds, which the processor encodes before a GPU's worker has started."""
    made = Clip(times=constant_times(48), width=320, height=176, options=(("x264-params", "keyint=24:scenecut=0"),))
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", made)


async def test_a_short_job_is_software_alone(clip: Path, tmp_path: Path) -> None:
    """The report says why the GPU was not used."""
    done, report = transcode(clip, tmp_path / "auto.mp4", "--codec h264")
    assert done.returncode == 0, done.stderr
    assert {segment["decoded_by"] for segment in report["segments"]} == {"software"}
    assert report["gpu_refusal"] == "the CPU finishes the job before a GPU's worker process starts"
    assert sha256(tmp_path / "auto.mp4") == await in_software(clip, tmp_path / "cpu.mp4")


@pytest.mark.parametrize("options", ["--codec h264 --device gpu --encoder software", "--codec h264 --encoder nvenc"])
async def test_what_needs_the_gpu_waits_for_it(options: str, clip: Path, tmp_path: Path) -> None:
    """A job that needs the GPU waits until Ray has started the GPU's worker."""
    done, report = transcode(clip, tmp_path / "gpu.mp4", options)
    assert done.returncode == 0, done.stderr
    assert {segment["decoded_by"] for segment in report["segments"]} == {"nvdec"}
    assert report["warnings"] == []
    if "nvenc" not in options:
        assert sha256(tmp_path / "gpu.mp4") == await in_software(clip, tmp_path / "cpu.mp4")


def test_a_driver_that_hung_once_costs_no_gpu(clip: Path, tmp_path: Path) -> None:
    """If NVML did not list the GPUs, a probe on Ray finds them."""
    hangs = Fault(function="nvmlInit", action=Action.HANG, call=1)
    done, report = transcode(clip, tmp_path / "gpu.mp4", "--codec h264 --device gpu --encoder software", [hangs])
    assert done.returncode == 0, done.stderr
    assert {segment["decoded_by"] for segment in report["segments"]} == {"nvdec"}
