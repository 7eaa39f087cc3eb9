"""Where a user's own files lie: the configuration, and presets."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

CONFIG_VARIABLE: Final = "CODECFLEET_CONFIG"
"""Names another file than ``config.toml`` in the user's folder."""


def config_path(environment: Mapping[str, str]) -> Path | None:
    """Return the file that the configuration is read from, if it is there; None for a user without a home."""
    if named := environment.get(CONFIG_VARIABLE, ""):
        return Path(named)
    folder = _folder(environment)
    return None if folder is None else folder / "config.toml"


def presets_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's own presets, if it is there; None for a user without a home."""
    folder = _folder(environment)
    return None if folder is None else folder / "presets"


def _folder(environment: Mapping[str, str]) -> Path | None:
    named = environment.get("XDG_CONFIG_HOME", "")
    if named and Path(named).is_absolute():  # another one is to be ignored: XDG Base Directory Specification 0.8
        return Path(named) / "codecfleet"
    with suppress(RuntimeError):
        return Path.home() / ".config" / "codecfleet"
    return None
