import asyncio
from pathlib import Path

import pytest

from codecfleet.jobs.fleet import Fleet

from .cases import SHORT
from .table import run_case

pytestmark = [pytest.mark.media, pytest.mark.ray, pytest.mark.slow]


def test_x() -> None:
    """X."""
    assert SHORT
