"""``Decoder`` and ``Encoder`` on the real PyNvVideoCodec and the driver simulator.

Their sessions are those of jobs, whose faults ``test_faults.py`` tries.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from .fault_cases import Case, told_by

pytestmark = pytest.mark.skipif(
    find_spec("PyNvVideoCodec") is None or find_spec("cuda") is None, reason="PyNvVideoCodec or cuda-python is missing"
)


def test_every_step_succeeds(tmp_path: Path) -> None:
    """A clip is decoded twice on one ``Decoder``; pictures are encoded, at new rates too, by one ``Encoder``."""
    for answer in told_by(tmp_path, [Case("nvcuvid packets", ()), Case("nvenc packets", ())]):
        assert [line[1] for line in answer["told"]] == [""] * 4
        assert answer["exit_code"] == 0
