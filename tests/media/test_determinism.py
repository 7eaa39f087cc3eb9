import hashlib
import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.cluster.fleet.pool import Pool
from codecfleet.jobs.fleet import Fleet
from codecfleet.testing import FaultyPool, LocalPool
from tests.sweeps import swept

from .cases import AV1, H264, HEVC, VP9, Case

pytestmark = [pytest.mark.media, pytest.mark.timeout(300)]

WORKERS = (1, 2, 3, 8)

CASES = (
    Case(source="derived_h264_opengop_360p_aac.mp4", codec=H264, container="mp4"),
    Case(source="film_bbb_800x640_sar64_45_bpyramid.mp4", codec=HEVC, container="mov"),
    Case(source="film_mpeg4_gap.avi", codec=AV1, container="mkv"),
    Case(source="nasa_2video_2audio.mp4", codec=VP9, container="webm", segment_s=Fraction(3)),
    Case(source="derived_hevc10_opengop_cra_rasl_360p.mp4", codec=H264, container="ts"),
)
"""Open GOPs, a pyramid, a gap, encoded sound and leading pictures, each in several segments."""


async def digest(pool: Pool | None, case: Case, footage: Path, output: Path, *, workers: int) -> str:
    """Run a case on ``pool`` with this many segments in flight, and return the SHA-256 of the output."""
    async with Fleet(pool=pool, workers=workers) as fleet:
        return await digest_on(fleet, case, footage, output, workers=workers)


async def digest_on(fleet: Fleet, case: Case, footage: Path, output: Path, *, workers: int) -> str:
    """Run a case on a fleet and return the SHA-256 of the output."""
    path = output / f"{workers}-{case.output_name}"
    spec = case.spec(str(footage), str(path)).model_copy(update={"workers": workers})
    report = await (await fleet.transcode(spec))
    assert len(report.segments) > 1
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == report.proof.output_sha256
    path.unlink()
    return found


def shuffled(segments: Iterable[int], seed: int) -> list[str]:
    """Return the labels of the segments in an order decided by a seed."""
    labels = [f"segment {number}" for number in segments]
    random.Random(seed).shuffle(labels)  # noqa: S311 - no secret
    return labels


@pytest.mark.parametrize("case", swept(CASES), ids=lambda case: case.source)
async def test_bytes_do_not_depend_on_workers_nor_on_the_order_they_finish_in(
    shared_media: Path, tmp_path: Path, case: Case
) -> None:
    """1, 2, 3 and 8 workers that finish in any order, one of which dies, write the same file."""
    digests = {}
    for workers in WORKERS:
        pool = FaultyPool(
            LocalPool(min(workers, 3)),
            kills={("segment 1", 1)} if workers == WORKERS[-1] else (),
            finishing_order=shuffled(range(32), seed=workers),
        )
        digests[workers] = await digest(pool, case, shared_media, tmp_path, workers=workers)
    assert len(set(digests.values())) == 1, digests


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.ci
async def test_bytes_are_the_same_on_ray(shared_media: Path, tmp_path: Path) -> None:
    """Real processes, with 1, 2, 3 and 8 segments in flight, write the same file as threads."""
    case = replace(CASES[0], segment_s=Fraction(2))
    expected = await digest(LocalPool(2), case, shared_media, tmp_path, workers=2)
    async with Fleet(workers=WORKERS[-1]) as fleet:
        found = [await digest_on(fleet, case, shared_media, tmp_path, workers=workers) for workers in WORKERS]
    assert set(found) == {expected}
