"""Where a known job runs on each simulated fleet, compared with reviewed files in tests/golden/fleets.

``UPDATE_GOLDEN=1 make test PYTEST="tests/unit/jobs/plan/test_golden_fleets.py"`` writes them again. Then read each
difference, and update configs/fleets/README.md, which gives the reasons.
"""

import os
from pathlib import Path

import pytest

from codecfleet.cluster.placement.build import inventory_of_fleet
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, Rendition
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.simulated.fleet_file import built_in_fleets, load_fleet
from codecfleet.jobs.plan.placing import place_plan

GOLDEN = Path(__file__).parents[3] / "golden" / "fleets"
SOFTWARE = {MediaCodec.HEVC: "libx265", MediaCodec.AV1: "libsvtav1"}


def _minute(source: MediaCodec, target: MediaCodec, depth: int, encoder: EncoderChoice) -> Demand:
    """Return a minute of 1080p at 24 frames a second, cut into segments of two seconds."""
    return Demand(
        job="minute",
        segments=(48,) * 30,
        decode=CodecCase(source, Direction.DECODE, bit_depth=depth),
        width=1920,
        height=1080,
        renditions=(
            Rendition(
                case=CodecCase(target, Direction.ENCODE, bit_depth=depth),
                width=1920,
                height=1080,
                software=SOFTWARE[target],
            ),
        ),
        encoder=encoder,
    )


JOBS = {
    "H.264 8-bit to HEVC, any encoder": _minute(MediaCodec.H264, MediaCodec.HEVC, 8, EncoderChoice.AUTO),
    "H.264 8-bit to HEVC, by software": _minute(MediaCodec.H264, MediaCodec.HEVC, 8, EncoderChoice.SOFTWARE),
}
AV1_JOBS = {
    "AV1 10-bit to AV1 10-bit, any encoder": _minute(MediaCodec.AV1, MediaCodec.AV1, 10, EncoderChoice.AUTO),
    "AV1 10-bit to AV1 10-bit, by software": _minute(MediaCodec.AV1, MediaCodec.AV1, 10, EncoderChoice.SOFTWARE),
}
FILES = {**{name: (name, JOBS) for name in built_in_fleets()}, "h200-l40s-av1": ("h200-l40s", AV1_JOBS)}


def _placed(fleet_name: str, jobs: dict[str, Demand]) -> str:
    fleet = load_fleet(fleet_name)
    inventory = inventory_of_fleet(fleet)
    blocks = [fleet.description]
    for title, demand in jobs.items():
        placed = place_plan(demand, inventory, start_rates(), Policy(), where=fleet.name)
        blocks.append("\n".join([f"== {title}", *placed.lines()]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_fleet_places_a_known_job_as_people_have_read_it(name: str) -> None:
    """The placement of a minute of film on a fleet is the one in its golden file."""
    path = GOLDEN / f"{name}.txt"
    placed = _placed(*FILES[name])
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(placed, encoding="utf-8")
    assert placed == path.read_text(encoding="utf-8")
