"""The short form of ``make chaos``: a round on this machine, on a cluster, on simulated GPUs, and of a queue."""

import pytest

from .films import Film, films_for
from .opening import obstacle, place_of
from .queue_rounds import attack_of
from .rounds import round_folder
from .schedule import Fault, Round, Shape, Strike

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(600)]

SEGMENTS = 12
CLUSTER = Shape.TWO_NODES if obstacle(Shape.SPLIT_NODES) else Shape.SPLIT_NODES
"""Two nodes; with networks of their own where root may make them."""
ROUNDS = {
    Shape.PRIVATE: (Fault.STORAGE_DOWN, Fault.WORKER_KILLED, Fault.PAYLOAD_DAMAGED),
    CLUSTER: (Fault.SUPERVISOR_KILLED, Fault.NODE_KILLED if CLUSTER is Shape.TWO_NODES else Fault.NODE_CUT_OFF),
    Shape.SIMULATED_GPUS: (Fault.GPU_LOST,),
    Shape.QUEUE: (Fault.DATABASE_KILLED, Fault.HEAD_KILLED),
}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[Shape, Film]:
    """The source of all rounds."""
    shapes = [shape for shape in ROUNDS if not obstacle(shape)]
    return films_for(shapes, tmp_path_factory.mktemp("film"), segments=SEGMENTS)


@pytest.mark.parametrize("shape", ROUNDS, ids=str)
def test_a_job_survives_its_faults(shape: Shape, films: dict[Shape, Film]) -> None:
    """Output, repeated work and leftovers are as promised, and the same events lead to the same effects and state."""
    if reason := obstacle(shape):
        pytest.skip(reason)
    strikes = tuple(Strike(fault, 2 + 2 * number, 0.1, 0.5) for number, fault in enumerate(ROUNDS[shape]))
    with place_of(shape) as place, round_folder() as folder:
        result = attack_of(Round(0, shape, strikes, beside=False), place, films[shape], folder).run()
    assert result.problems == []
    assert result.events > 0
    assert [fault for fault, _ in result.recoveries_s] == list(ROUNDS[shape]), "all of them struck"
