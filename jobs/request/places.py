"""Finds the user's own files: configuration and presets, and the files sent with a submitted command."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from ...errors import UsageError

CONFIG_VARIABLE: Final = "CODECFLEET_CONFIG"  #: Replaces ``config.toml`` in the user's folder
SENT_VARIABLE: Final = "CODECFLEET_SENT"  #: The files that `codecfleet submit` sent with a command
SENT_BYTES_MAX: Final = 32 << 10  #: The largest encoded size; Linux limits one argument of a program to 128 KiB


@dataclass(frozen=True, slots=True)
class SentFiles:
    """The contents of files from the machine where a command was submitted: spec files by path, presets by name."""

    specs: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the files in the environment. Raises UsageError: the value does not come from ``variables``."""
        try:
            return cls(**_texts(json.loads(environment.get(SENT_VARIABLE, "{}"))))
        except (ValueError, TypeError, RecursionError):
            message = f"{SENT_VARIABLE} is not from codecfleet submit"
            raise UsageError(message, "Only submitted commands have this variable; unset it.") from None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable that carries the files. Raises UsageError: the files are too large."""
        if not self.specs and not self.presets:
            return {}
        text = json.dumps({"specs": dict(self.specs), "presets": dict(self.presets)})
        if len(text) > SENT_BYTES_MAX:
            message = f"the spec file and the presets have {len(text)} bytes; {SENT_BYTES_MAX} at most can be sent"
            raise UsageError(message, "Remove comments from these files, or give the options on the command line.")
        return {SENT_VARIABLE: text}


def _texts(found: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401 - any JSON value
    """Return ``found`` as a mapping of mappings of strings.

    Raises TypeError or ValueError: the value is something else.
    """
    files = {str(kind): dict(texts) for kind, texts in dict(found).items()}
    if not all(isinstance(text, str) for texts in files.values() for text in texts.values()):
        raise TypeError
    return files


def config_path(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the configuration, whether it exists or not; None for a user without a home."""
    if named := environment.get(CONFIG_VARIABLE, ""):
        return Path(named)
    folder = _folder(environment)
    return None if folder is None else folder / "config.toml"


def presets_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's presets, whether it exists or not; None for a user without a home."""
    folder = _folder(environment)
    return None if folder is None else folder / "presets"


def _folder(environment: Mapping[str, str]) -> Path | None:
    named = environment.get("XDG_CONFIG_HOME", "")
    if named and Path(named).is_absolute():  # relative paths must be ignored: XDG Base Directory Specification 0.8
        return Path(named) / "codecfleet"
    with suppress(RuntimeError):
        return Path.home() / ".config" / "codecfleet"
    return None
