"""Temporary."""
from pathlib import Path
import pytest
from .test_transcode import transcode, sha256, pytestmark  # noqa
def test_auto(film: Path, tmp_path: Path) -> None:
    done, report = transcode(film, tmp_path / "gpu.mp4", "auto")
    print(done.stderr)
    print([(s["decoded_by"], s["fallback"]) for s in report["segments"]], report["warnings"])
    assert 0
