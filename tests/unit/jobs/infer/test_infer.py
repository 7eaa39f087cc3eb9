"""Inference jobs on fake DLAs: segments fan out, tensors are joined in order, failures leave nothing behind."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.dla.engine.host import open_host
from codecfleet.actors.dla.engine.statuses import CudlaStatus
from codecfleet.actors.dla.engine.tensors import DataFormat, DataType
from codecfleet.actors.dla.inference.network import WarmNetworks
from codecfleet.actors.dla.inference.pictures import PictureScaler, PixelRule
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.preview import PlacementPreview
from codecfleet.errors import (
    CodecfleetError,
    InputNotFound,
    InputUnreadable,
    NoVideoTrack,
    OutputExists,
    OutputInUse,
    SegmentFailed,
    Unsupported,
    UsageError,
)
from codecfleet.jobs.infer.job import InferReport, infer
from codecfleet.jobs.infer.spec import InferSpec
from codecfleet.jobs.join.owner import FolderOwner
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, make_clip
from codecfleet.testing.nvidia.fake_cudla import FakeLoadable, FakeMachine, fake_tensor

from ..pools import WatchedPool, damage_packet

FRAMES = 40
TIMES = tuple(range(0, FRAMES * 40, 40))
NETWORK = FakeLoadable(
    fake_tensor("pixels", (3, 3, 8, 8), DataType.HALF, DataFormat.NHWC), fake_tensor("mean/s", (3, 3, 1, 1))
)
RULE = PixelRule(mean=(1.0, 2.0, 3.0), scale=(0.5,))


class Bench:
    """A clip, a loadable, and three DLAs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[int] = []
        self.fake = FakeMachine(dlas=3)
        self.networks = WarmNetworks(
            lambda timing, _mode: open_host(  # the fake has only the hybrid mode
                dataclasses.replace(timing, patience=self.fake.patience),
                environment={},
                import_module=self.fake.import_module,
            )
        )
        keyframes = frozenset(range(0, FRAMES, 8))
        self.source = make_clip(folder / "clip.mkv", Clip(times=TIMES, keyframes=keyframes))
        self.loadable = folder / "net.dla"
        self.loadable.write_bytes(NETWORK.to_bytes())

    def spec(self, **changes: Any) -> InferSpec:
        """Return the plan, with a segment for each keyframe."""
        names = {"source": str(self.source), "loadable": str(self.loadable), "output": str(self.folder / "out.npz")}
        return InferSpec(**{**names, "mean": RULE.mean, "scale": RULE.scale, "segment_s": Fraction(8, 25), **changes})

    async def infer(self, pool: Pool | None = None, *, keeps_record: bool = False, **changes: Any) -> InferReport:
        """Run a job."""
        async with pool or LocalPool(6) as running:
            return await infer(
                self.spec(**changes),
                running,
                networks=self._networks,
                progress=self.told.append,
                keeps_record=keeps_record,
            )

    def _networks(self) -> WarmNetworks:
        return self.networks

    def expected(self) -> NDArray[np.float32]:
        """Return the result of a sequential run for every frame."""
        scaler = PictureScaler(NETWORK.source)
        with av.open(str(self.source)) as container:
            pictures = [scaler.scaled(frame) for frame in container.decode(video=0)]
        values = RULE.applied(np.stack(pictures), np.dtype(np.float16))
        return np.asarray(NETWORK.expected(values))

    def left_over(self) -> set[str]:
        """Return the files that a job left in the folder."""
        return {path.name for path in self.folder.iterdir()} - {"clip.mkv", "net.dla"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Everything a job needs."""
    bench = Bench(tmp_path)
    yield bench
    bench.networks.close()
    bench.fake.release()


def _tensors(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


async def test_every_frame_has_its_tensor_at_its_time(bench: Bench) -> None:
    """The file has a sequential run's tensors, in order, with the source's times, and all DLAs took part."""
    report = await bench.infer()
    found = _tensors(bench.folder / "out.npz")
    assert set(found) == {"pts_ticks", "time_base", "mean_s"}
    assert found["pts_ticks"].tolist() == list(TIMES)
    assert found["time_base"].tolist() == [1, 1000]
    assert (found["mean_s"].shape, found["mean_s"].dtype) == ((FRAMES, 3, 1, 1), np.float32)
    np.testing.assert_array_equal(found["mean_s"], bench.expected())
    assert set(bench.fake.tasks_of) == {0, 1, 2}
    assert sum(report.segments_by_device.values()) == report.segments == 5
    assert (report.frames, report.warnings) == (FRAMES, ())
    assert bench.left_over() == {"out.npz"}
    document = json.loads(json.dumps(report.to_json()))
    assert (document["schema"], document["frames"], sum(document["segments_by_device"].values())) == (1, FRAMES, 5)
    assert document["tensors"] == [{"name": "mean_s", "shape": [FRAMES, 3, 1, 1], "dtype": "float32"}]
    assert f"tensor mean_s: {FRAMES} x 3 x 1 x 1 float32" in report.lines()


async def test_the_file_does_not_depend_on_who_did_what(bench: Bench) -> None:
    """The file's bytes do not depend on order, workers, DLAs, concurrent tasks or lost workers."""
    await bench.infer(workers=1, devices=(1,), tasks_at_once=1)
    assert bench.networks.created == bench.fake.calls.count("cudlaModuleLoadFromMemory") == 1
    assert set(bench.fake.tasks_of) == {1}
    first = (bench.folder / "out.npz").read_bytes()
    pool = FaultyPool(
        LocalPool(4),
        kills=[("segment 1", 1), ("segment 3", 1), ("segment 3", 2)],
        finishing_order=["segment 4", "segment 2", "segment 0"],
    )
    await bench.infer(pool, overwrite=True)
    assert (bench.folder / "out.npz").read_bytes() == first


async def test_a_part_of_the_source(bench: Bench) -> None:
    """A part has the frames from its start until before its end, wherever keyframes are."""
    await bench.infer(start_s=Fraction(1, 2), end_s=Fraction(1))
    found = _tensors(bench.folder / "out.npz")
    inside = [n for n, ticks in enumerate(TIMES) if 500 <= ticks < 1000]
    assert found["pts_ticks"].tolist() == [TIMES[n] for n in inside]
    np.testing.assert_array_equal(found["mean_s"], bench.expected()[inside])


async def test_damage_means_the_same_however_it_is_cut(bench: Bench) -> None:
    """Segments decode a damaged source like a sequential decode, and the report has the damage."""
    damage_packet(bench.source, 13)
    whole = await bench.infer(segment_s=Fraction(100))
    expected = (bench.folder / "out.npz").read_bytes()
    cut = await bench.infer(overwrite=True)
    assert (whole.segments, cut.segments > 1) == (1, True)
    assert (bench.folder / "out.npz").read_bytes() == expected
    assert all(any("damage in" in warning for warning in each.warnings) for each in (whole, cut))


async def test_a_broken_dla_fails_the_job_and_leaves_nothing(bench: Bench) -> None:
    """An engine's error ends the job after its retries, with the reason in one line and no file."""
    bench.fake.fault("cudlaTask", 3, CudlaStatus.DLA_DATA_MISMATCH)
    with pytest.raises(SegmentFailed, match="data does not match"):
        await bench.infer()
    assert bench.left_over() == set()


async def test_what_cannot_be_is_refused_before_a_worker_starts(bench: Bench) -> None:
    """A taken name, a missing loadable, an empty part, and pictures that do not decode have different errors."""
    locked = make_clip(bench.folder / "locked.mkv", Clip(times=TIMES[:3]))
    for packet in range(3):
        damage_packet(locked, packet)
    unused = LocalPool(1)
    await unused.aclose()  # starting the pool now would be a separate error
    (bench.folder / "taken.npz").touch()
    wrong: list[tuple[type[CodecfleetError], dict[str, Any]]] = [
        (OutputExists, {"output": str(bench.folder / "taken.npz")}),
        (InputNotFound, {"loadable": str(bench.folder / "nothing.dla")}),
        (UsageError, {"start_s": Fraction(100)}),
        (NoVideoTrack, {"video_track": 1}),
        (InputNotFound, {"source": str(bench.folder / "nothing.mkv")}),
        (InputUnreadable, {"source": str(locked)}),
    ]
    for error, changes in wrong:
        with pytest.raises(error):
            await infer(bench.spec(**changes), unused, networks=lambda: bench.networks)


async def test_a_dla_that_is_not_there_and_a_network_not_for_pictures_are_refused(bench: Bench) -> None:
    """A DLA that the pool lacks is refused before the work; otherwise the first worker reports it once."""

    class Without(LocalPool):
        async def preview(self, demand: Demand) -> PlacementPreview:
            """Report that there is no DLA."""
            return PlacementPreview(never=f"no machine has DLA {demand.dlas}")

    with pytest.raises(Unsupported, match="no machine has DLA"):
        await bench.infer(Without(1), devices=(3,))
    with pytest.raises(Unsupported, match="there is no DLA 3"):
        await bench.infer(devices=(3,))
    odd = FakeLoadable(fake_tensor("x", (1, 7, 4, 4)), fake_tensor("y", (1, 7, 1, 1)))
    bench.loadable.write_bytes(odd.to_bytes())
    with pytest.raises(Unsupported, match="7 channels"):
        await bench.infer()
    assert bench.left_over() == set()


async def test_only_the_request_whose_record_was_kept_replaces_the_file(bench: Bench) -> None:
    """Neither a failed nor a refused run removes the record; the run that replaces the file does."""
    await bench.infer(keeps_record=True)
    output, record = bench.folder / "out.npz", bench.folder / ".out.npz.codecfleet"
    before = output.read_bytes()
    output.write_bytes(b"the user's own")
    with pytest.raises(OutputExists):
        await bench.infer()
    output.write_bytes(before)
    assert bench.left_over() == {"out.npz", ".out.npz.codecfleet"}
    with pytest.raises(OutputExists):
        await bench.infer(scale=(0.25,))
    unused = LocalPool(1)
    await unused.aclose()
    with pytest.raises(CodecfleetError):
        await bench.infer(unused)
    owner = FolderOwner(record, str(output))
    owner.acquire()
    (record / "tensor-0").touch()  # of the run that owns the folder
    with pytest.raises(OutputInUse):
        await bench.infer()
    assert (record / "tensor-0").exists()
    owner.release()
    await bench.infer()
    assert output.read_bytes() == before
    assert bench.left_over() == {"out.npz"}
    with pytest.raises(OutputExists):
        await bench.infer()


async def test_cancelling_leaves_nothing(bench: Bench) -> None:
    """A cancelled job stops its segments and removes its files."""
    pool = WatchedPool(2)
    job = asyncio.create_task(bench.infer(pool))
    await pool.begun.wait()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert bench.left_over() == set()
