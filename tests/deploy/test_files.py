"""The files of deploy/: YAML that every parser reads alike, and commands that codecfleet has."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from codecfleet.cli.app import parse

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(DEPLOY.rglob("*.yaml"))
SETTINGS = ("*.yaml", "*.service", "Dockerfile", "README.md")
VALUES = {"${RAY_FILES}": "/var/lib/codecfleet/ray", "$CODECFLEET_NODE_OPTIONS": "", "$HOME": "/home/ubuntu"}


def node_commands() -> list[str]:
    """Return the commands that are run as ``codecfleet node ...``, or by an image whose entry point is codecfleet."""
    found = set()
    for path in sorted(each for pattern in SETTINGS for each in DEPLOY.rglob(pattern)):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        if path.suffix == ".yaml":
            text = text.replace("\n    -- ", " -- ")  # a folded line
        found |= {each.strip() for each in re.findall(r"\bnode ((?:start|env|stop)\b[^;)|\n`]*)", text)}
    return sorted(found)


@pytest.mark.parametrize("command", node_commands())
def test_its_parser_takes_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of `codecfleet node` accepts each command with all of its options."""
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    for name, value in VALUES.items():
        command = command.replace(name, value)
    assert not isinstance(parse(["node", *shlex.split(command)]), int)


class _Strict(yaml.SafeLoader):
    """Refuses a mapping that has a key twice: parsers differ in which of the values they take."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - PyYAML's
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            message = f"the key {twice[0]} stands twice"
            raise yaml.constructor.ConstructorError(problem=message, problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_is_strict_and_clean(path: Path) -> None:
    """Each document is a mapping with each key once; no tab, no line's end in spaces, no line above 120 characters."""
    text = path.read_text(encoding="utf-8")
    assert all(isinstance(document, dict) for document in yaml.load_all(text, Loader=_Strict))
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if "\t" in line or line != line.rstrip() or len(line) > 120] == []
