"""The reviewed texts in tests/golden. ``UPDATE_GOLDEN=1`` writes them again: review every difference."""

import os
from pathlib import Path


def golden(name: str, text: str) -> str:
    """Return the content of the file ``name``; with ``UPDATE_GOLDEN=1``, first write ``text`` to the file."""
    path = Path(__file__).parent / "golden" / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")
