"""``Decoder`` and ``Encoder`` with the real PyNvVideoCodec on the driver simulator.

They use the sessions of jobs, whose faults ``test_faults.py`` tests.
"""

from pathlib import Path

from .fault_cases import Case, told_by
from .simulated_driver import needs

pytestmark = needs("PyNvVideoCodec", "cuda")


def test_every_step_succeeds(tmp_path: Path) -> None:
    """A clip is decoded twice with one ``Decoder``; one ``Encoder`` encodes pictures, also at new rates."""
    for answer in told_by(tmp_path, [Case("nvcuvid packets", ()), Case("nvenc packets", ())]):
        assert [line[1] for line in answer["told"]] == [""] * 4
        assert answer["exit_code"] == 0
