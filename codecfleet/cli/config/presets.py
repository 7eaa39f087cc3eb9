"""The command ``presets``: ours and the user's own."""

import os
from typing import Annotated, Final

import typer

from ...errors import UsageError
from ...jobs.request.values import parse_choice
from ..calls.answers import Answer
from ..params import JsonFlag
from ..question import Question
from ..services import Commands

_ACTIONS: Final = ("list", "show")


def _presets(
    action: Annotated[
        str,
        typer.Argument(metavar="list|show", help="List all presets, or show the file of NAME.", show_default=False),
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A preset's name.", show_default=False)] = None,
    *,
    as_json: JsonFlag = False,
) -> Question:
    chosen = parse_choice("ACTION", action, choices=_ACTIONS)
    if (name is None) != (chosen == "list"):
        message = "NAME is missing" if name is None else "`presets list` takes no name"
        raise UsageError(message, "Write codecfleet presets, or codecfleet presets show web-h264.")
    return Question(ask=lambda _services, _progress: _all() if name is None else _one(name), as_json=as_json)


COMMANDS: Final[Commands] = {
    "presets": (_presets, ["presets", "presets show web-h264 > ~/.config/codecfleet/presets/mine.toml"])
}


def _all() -> Answer:
    from ...console.settings_text import preset_rows
    from ...jobs.request.places import presets_folder
    from ...jobs.request.presets import PRESETS_SCHEMA, find_presets

    presets = list(find_presets(presets_folder(os.environ)).values())
    document = {"schema": PRESETS_SCHEMA, "presets": [each.to_json() for each in presets]}
    return Answer(preset_rows(presets), document)


def _one(name: str) -> Answer:
    from ...jobs.request.places import presets_folder
    from ...jobs.request.presets import PRESETS_SCHEMA, preset_named

    preset = preset_named(name, presets_folder(os.environ), "NAME")
    return Answer(preset.text.splitlines(), {"schema": PRESETS_SCHEMA, **preset.to_json(), "toml": preset.text})
