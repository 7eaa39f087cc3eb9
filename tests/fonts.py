"""A font for tests: the one inside Pillow, which has only Latin letters."""

import pytest

__all__ = ["a_font"]


def a_font() -> bytes:
    """Return the font's file; skip the test if Pillow is not installed."""
    font = pytest.importorskip("PIL.ImageFont").load_default(20)
    content: bytes = font.font_bytes
    return content
