"""The configuration and presets, as text for people."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..jobs.request.config import Config
    from ..jobs.request.presets import NamedPreset


def config_lines(config: "Config") -> list[str]:
    """Return the configuration as a file that would set it, with where each value came from beside it."""
    document = config.to_json()
    rows = [(_assigned(key), _origin(key)) for key in document["keys"]]
    width = max(len(assigned) for assigned, _ in rows)
    path = "none, as this user has no home" if document["path"] is None else document["path"]
    there = "" if document["is_there"] or document["path"] is None else " (not there)"
    return [f"# {path}{there}", *(f"{assigned:<{width}}  # {origin}" for assigned, origin in rows)]


def _assigned(key: dict[str, Any]) -> str:
    if key["value"] is None:
        return f"# {key['key']}"
    return f"{key['key']} = {json.dumps(key['value'], ensure_ascii=False)}"


def _origin(key: dict[str, Any]) -> str:
    return key["place"] or ("default" if key["value"] is not None else f"default: {key['default']}")


def preset_rows(presets: "Sequence[NamedPreset]") -> list[str]:
    """Return a row for each preset; the user's own ones say so."""
    rows = [("preset", "codec", "for"), *((each.name, each.codec or "-", _purpose(each)) for each in presets)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _purpose(preset: "NamedPreset") -> str:
    if not preset.is_own:
        return preset.summary
    hides = ", instead of ours of that name" * preset.hides
    return f"{preset.summary} (yours: {preset.path}{hides})".lstrip()
