"""Which segments count as a miss of the target quality, and why."""

import pytest

from codecfleet.actors.encode.target import QualityTarget
from codecfleet.actors.quality.measuring import UNITS
from codecfleet.actors.segment.targeting import ReachedQuality
from codecfleet.jobs.run.reached import target_warnings


def reached(value: float, crf: str = "23") -> ReachedQuality:
    """Return a segment of four equal pictures."""
    return ReachedQuality(crf=crf, encodes=4, values=(round(value * UNITS),) * 4)


@pytest.mark.parametrize(
    ("asked", "found", "codes"),
    [
        ("xpsnr:42:crf10-45", [reached(41.85), reached(42.15)], []),
        ("vmaf:94:crf10-45", [reached(93.7), reached(94.3)], []),
        ("vmaf:94:crf10-45", [reached(93.4)], ["target-missed"]),
        ("xpsnr:42:crf10-45", [reached(41.7), reached(42.3)], ["target-missed", "target-exceeded"]),
        ("xpsnr:42:crf10-45", [ReachedQuality(crf="23", encodes=1, values=())], []),
    ],
)
def test_a_miss_is_more_than_what_a_step_of_the_crf_explains(
    asked: str, found: list[ReachedQuality], codes: list[str]
) -> None:
    """Segments near the target are no warning, on either side."""
    assert [each.code for each in target_warnings(QualityTarget.parse(asked), found, None)] == codes


def test_the_limit_is_the_reason() -> None:
    """A recording without movement has 52.7 dB even at the highest CRF; grain may need more than the lowest."""
    target = QualityTarget.parse("xpsnr:42:crf10-45")
    below, above = target_warnings(target, [reached(52.7, "45"), reached(42), reached(40, "10")], 500_000)
    assert above.message == "1 of 3 segments are up to 10.7 dB above xpsnr:42: CRF 45 is the highest allowed"
    assert "CRF 10 is the lowest allowed" in below.message
    assert "--maxrate" in below.message
