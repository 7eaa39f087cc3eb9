"""``Decoder`` and ``Encoder`` on the real PyNvVideoCodec and the driver simulator.

Their sessions are those of jobs, whose faults ``test_faults.py`` tries.
"""

from pathlib import Path

from .fault_cases import Case, told_by
from .simulated_driver import needs

pytestmark = needs("PyNvVideoCodec", "cuda")


def test_every_step_succeeds(tmp_path: Path) -> None:
    """A clip is decoded twice on one ``Decoder``; pictures are encoded, at new rates too, by one ``Encoder``."""
    for answer in told_by(tmp_path, [Case("nvcuvid packets", ()), Case("nvenc packets", ())]):
        assert [line[1] for line in answer["told"]] == [""] * 4
        assert answer["exit_code"] == 0
