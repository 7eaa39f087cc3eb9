"""The short form of ``make chaos``: one round of each shape."""

import pytest

from .places import place_of
from .rounds import Attack, Film, round_folder
from .schedule import Fault, Round, Shape, Strike

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Film:
    """The source of all rounds."""
    return Film.make(tmp_path_factory.mktemp("film"))


@pytest.mark.parametrize(
    ("shape", "faults"),
    [
        (Shape.PRIVATE, [Fault.WORKER_KILLED, Fault.PAYLOAD_DAMAGED]),
        (Shape.TWO_NODES, [Fault.SUPERVISOR_KILLED, Fault.NODE_KILLED]),
    ],
    ids=lambda value: value.value if isinstance(value, Shape) else "",
)
def test_a_job_survives_its_faults(shape: Shape, faults: list[Fault], film: Film) -> None:
    """Output, redone work and leftovers are as promised."""
    strikes = tuple(
        Strike(fault, after_segments, 0.1, 0.5) for after_segments, fault in zip((4, 9), faults, strict=True)
    )
    with place_of(shape) as place, round_folder() as folder:
        assert Attack(Round(0, shape, strikes, beside=False), place, film, folder).run().problems == []
