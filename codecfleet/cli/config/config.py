"""The command ``config``: what is set once for all jobs, and where."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...jobs.request.values import parse_choice
from ..calls.answers import Answer
from ..params import JsonFlag
from ..question import Question
from ..services import Commands

if TYPE_CHECKING:
    from ...jobs.request.config import Config

_ACTIONS: Final = ("show",)


def _config(
    action: Annotated[str, typer.Argument(metavar="show", help="Show each key, its value, and where it came from.")],
    *,
    as_json: JsonFlag = False,
) -> Question:
    from ...jobs.request.config import load_config

    parse_choice("ACTION", action, choices=_ACTIONS)
    config = load_config()  # before a running command's environment has what it hands on
    return Question(ask=lambda _services, _progress: _shown(config), as_json=as_json)


COMMANDS: Final[Commands] = {"config": (_config, ["config show || codecfleet config show --json | jq .keys"])}


def _shown(config: "Config") -> Answer:
    from ...console.settings_text import config_lines

    return Answer(config_lines(config), config.to_json())
