"""A font for tests: the one inside Pillow, of Latin letters alone."""

import pytest

__all__ = ["a_font"]


def a_font() -> bytes:
    """Return the file; a test is skipped where Pillow is not installed."""
    font = pytest.importorskip("PIL.ImageFont").load_default(20)
    content: bytes = font.font_bytes
    return content
