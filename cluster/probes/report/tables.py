"""Reads the TOML tables in ``configs``."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_tables(name: str) -> dict[str, Any]:
    """Return a parsed file of ``configs``; the caller must not change it."""
    text = files(f"{__name__.split('.')[0]}.configs").joinpath(name).read_text(encoding="utf-8")
    return tomllib.loads(text)
