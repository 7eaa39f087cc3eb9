"""A machine with NVDEC and DLAs: PyNvVideoCodec's decoder and cuDLA in one process, on one CUDA context."""

from dataclasses import replace
from pathlib import Path

from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .scenario import Scenario, machine
from .simulated_driver import needs, run_simulated
from .test_dla import INFER, PRELUDE, scenario

pytestmark = needs("PyNvVideoCodec")


def test_infer_decodes_on_nvdec_and_gives_software_s_tensors(tmp_path: Path) -> None:
    """Every picture comes from NVDEC, none is decoded twice, and the tensors are those of FFmpeg's own decoder."""
    pictures = 26
    clip = Clip(times=constant_times(pictures), options=(("x264-params", "keyint=8"),))
    film = make_clip(tmp_path / "film.mkv", clip)
    card, tegra = machine("rtx-4090").devices[0], scenario().machine
    devices = tuple(
        replace(device, engines={**device.engines, Engine.NVDEC: 1}, trials=card.trials)
        if device.engines.get(Engine.DLA)
        else device
        for device in tegra.devices
    )
    arguments = [str(film), str(tmp_path / "tensors.npz"), str(tmp_path / "net.dla")]
    both = Scenario(machine=replace(tegra, devices=devices))
    ran = run_simulated(PRELUDE + INFER, both, arguments=arguments)
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith(f"right ({pictures}, 3, 9, 16) float32")
    assert len(ran.calls("cuvidMapVideoFrame")) >= pictures
    assert len(ran.calls("cudlaTask")) == pictures // 2
