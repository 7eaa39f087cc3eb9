"""Every command of codecfleet's that is run where it is deployed: its parser takes it."""

import re
import shlex
from pathlib import Path

import pytest

from codecfleet.cli.app import parse

DEPLOY = Path(__file__).parents[2] / "deploy"
SETTINGS = ("*.yaml", "*.service", "Dockerfile", "README.md")
VALUES = {"${RAY_FILES}": "/var/lib/codecfleet/ray", "$CODECFLEET_NODE_OPTIONS": "", "$HOME": "/home/ubuntu"}


def node_commands() -> list[str]:
    """Return what is run as ``codecfleet node ...``, or by an image that is ``codecfleet``."""
    found = set()
    for path in sorted(each for pattern in SETTINGS for each in DEPLOY.rglob(pattern)):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        if path.suffix == ".yaml":
            text = text.replace("\n    -- ", " -- ")  # a folded line
        found |= {each.strip() for each in re.findall(r"\bnode ((?:start|env|stop)\b[^;)|\n`]*)", text)}
    return sorted(found)


@pytest.mark.parametrize("command", node_commands())
def test_its_parser_takes_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its options."""
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    for name, value in VALUES.items():
        command = command.replace(name, value)
    assert not isinstance(parse(["node", *shlex.split(command)]), int)
