"""The command ``docs``: the documentation that is installed with the program."""

import re
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...errors import UsageError
from ..calls.answers import Answer
from ..question import Question
from ..services import Commands

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_SUFFIX: Final = ".md"
_ROOMS: Final = ("", "nvidia/")


def _pages() -> "dict[str, Traversable]":
    """Return the pages by name."""
    root = files(f"{__name__.partition('.')[0]}.docs")
    return {
        f"{room}{page.name.removesuffix(_SUFFIX)}": page
        for room in _ROOMS
        for page in sorted(root.joinpath(room).iterdir(), key=lambda each: each.name)
        if page.name.endswith(_SUFFIX)
    }


def page_answer(name: str | None) -> Answer:
    """Return a page as it is written, or without a name what pages there are.

    Raises:
        UsageError: there is no such page.
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


def _title(text: str) -> str:
    found = re.search(r"^# (.*)$", text, re.MULTILINE)
    return "" if found is None else found[1]


def _docs(
    page: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="The page's name. Default: list them.", show_default=False),
    ] = None,
) -> Question:
    return Question(ask=lambda _services, _progress: page_answer(page), as_json=False)


COMMANDS: Final[Commands] = {"docs": (_docs, ["docs", "docs encoders", "docs batch | less"])}
