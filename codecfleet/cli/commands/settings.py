"""The commands about settings and pages: ``config``, ``presets`` and ``docs``."""

import os
import re
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...errors import UsageError
from ...jobs.request.values import parse_choice
from ..params import JSON
from ..question import Question
from ..services import Answer, Commands

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_SUFFIX: Final = ".md"
_FOLDERS: Final = ("", "nvidia/")


def _config(
    action: Annotated[str, typer.Argument(metavar="show", help="Show each key, its value, and where it came from.")],
    *,
    as_json: bool = JSON,
) -> Question:
    from ...console.listings import config_lines
    from ...jobs.request.config import load_config

    parse_choice("ACTION", action, choices=("show",))
    config = load_config()  # read before the running command copies the configuration into the environment
    return Question(ask=lambda _services, _progress: Answer(config_lines(config), config.to_json()), as_json=as_json)


def _presets(
    action: Annotated[
        str,
        typer.Argument(metavar="list|show", help="List all presets, or show the file of NAME.", show_default=False),
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A preset's name.", show_default=False)] = None,
    *,
    as_json: bool = JSON,
) -> Question:
    chosen = parse_choice("ACTION", action, choices=("list", "show"))
    if (name is None) != (chosen == "list"):
        message = "NAME is missing" if name is None else "`presets list` takes no name"
        raise UsageError(message, "Write codecfleet presets, or codecfleet presets show web-h264.")
    return Question(ask=lambda _services, _progress: _preset_answer(name), as_json=as_json)


def _preset_answer(name: str | None) -> Answer:
    from ...console.listings import preset_rows
    from ...jobs.request.places import presets_folder
    from ...jobs.request.presets import PRESETS_SCHEMA, find_presets, preset_named

    folder = presets_folder(os.environ)
    if name is not None:
        preset = preset_named(name, folder, "NAME")
        document = {"schema": PRESETS_SCHEMA, **preset.to_json(), "toml": preset.text}
        return Answer(preset.text.splitlines(), document)
    presets = list(find_presets(folder).values())
    return Answer(preset_rows(presets), {"schema": PRESETS_SCHEMA, "presets": [each.to_json() for each in presets]})


def _docs(
    page: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="The page's name. Default: list the pages.", show_default=False),
    ] = None,
) -> Question:
    return Question(ask=lambda _services, _progress: page_answer(page), as_json=False)


def page_answer(name: str | None) -> Answer:
    """Return a page of the installed documentation; without a name, return the list of pages.

    Raises UsageError if there is no page of that name.
    """
    pages = _pages()
    if name is None:
        width = max(map(len, pages))
        rows = [f"{each:<{width}}  {_title(page.read_text(encoding='utf-8'))}" for each, page in pages.items()]
        return Answer(rows, {})
    wanted = name.removeprefix("docs/").removesuffix(_SUFFIX)
    if wanted not in pages:
        near = get_close_matches(wanted, pages, n=1)
        step = f"Did you mean {near[0]}?" if near else "`codecfleet docs` lists the pages."
        raise UsageError(f"there is no page {name}", step)
    return Answer(pages[wanted].read_text(encoding="utf-8").splitlines(), {})


def _pages() -> "dict[str, Traversable]":
    root = files(f"{__name__.partition('.')[0]}.docs")
    return {
        f"{folder}{page.name.removesuffix(_SUFFIX)}": page
        for folder in _FOLDERS
        for page in sorted(root.joinpath(folder).iterdir(), key=lambda each: each.name)
        if page.name.endswith(_SUFFIX)
    }


def _title(text: str) -> str:
    found = re.search(r"^# (.*)$", text, re.MULTILINE)
    return "" if found is None else found[1]


COMMANDS: Final[Commands] = {
    "config": (_config, ["config show || codecfleet config show --json | jq .keys"]),
    "presets": (_presets, ["presets", "presets show web-h264 > ~/.config/codecfleet/presets/mine.toml"]),
    "docs": (_docs, ["docs", "docs encoders", "docs batch | less"]),
}
