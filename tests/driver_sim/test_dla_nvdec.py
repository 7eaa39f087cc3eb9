"""A machine with NVDEC and DLAs: PyNvVideoCodec's decoder and cuDLA in one process, on one CUDA context."""

from dataclasses import replace
from pathlib import Path

from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .scenario import Scenario, machine
from .simulated_driver import needs, run_simulated
from .test_dla import PRELUDE, scenario

pytestmark = needs("PyNvVideoCodec")
INFER = """
import asyncio
from fractions import Fraction
import av
from codecfleet.actors.dla.inference.network import warm_networks
from codecfleet.actors.dla.inference.pictures import PictureScaler, PixelRule
from codecfleet.actors.dla.engine.tensors import DataType
from codecfleet.jobs.infer.job import infer
from codecfleet.jobs.infer.spec import InferSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.nvidia.fake_cudla import fake_tensor
from tests.driver_sim.loadable import DataType as Kind

source, output, loadable = sys.argv[1:]
x, y = Tensor("x", (2, 3, 36, 64), Kind.HALF), Tensor("cells", (2, 3, 9, 16))
net = Loadable(Operation.BOX_MEAN, (x,), (y,), scale=3.0, bias=1.0)
open(loadable, "wb").write(net.to_bytes())
options = {"mean": (10.0, 20.0, 30.0), "scale": (0.25,)}

async def main():
    async with LocalPool(6) as pool:
        spec = InferSpec(source=source, loadable=loadable, output=output, **options, segment_s=Fraction(1))
        return await infer(spec, pool)

report = asyncio.run(main())
print(sorted(dla for _, dla in report.segments_by_device), report.frames)
warm_networks().close()

scaler = PictureScaler(fake_tensor("x", (2, 3, 36, 64), DataType.HALF))
found = np.load(output)
with av.open(source) as container:
    frames = list(container.decode(video=0))
times = sorted(frame.pts for frame in frames)
assert found["pts_ticks"].tolist() == times, (found["pts_ticks"], times)
for number, frame in enumerate(sorted(frames, key=lambda frame: frame.pts)):
    picture = np.repeat(PixelRule(**options).applied(scaler.scaled(frame)[None], np.dtype(np.float16)), 2, axis=0)
    (expected,) = net.expected([picture])
    assert np.array_equal(found["cells"][number], expected[0]), number
print("right", found["cells"].shape, found["cells"].dtype, found["time_base"])
"""


def test_infer_decodes_on_nvdec_and_gives_software_s_tensors(tmp_path: Path) -> None:
    """Every picture is decoded by NVDEC, only once, and the tensors are those of FFmpeg's decoder."""
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
