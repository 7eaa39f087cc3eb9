"""The reference pages against the code."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from codecfleet.cli.app import program, run
from codecfleet.jobs.report import events
from tests.docs.option_tables import all_commands

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
EVENTS = (DOCS / "events.md").read_text(encoding="utf-8")


def _command_tree() -> dict[str, Any]:
    return {"": typer.main.get_command(program()), **all_commands()}


def _chapter(text: str, title: str) -> str:
    match = re.search(rf"^## `{re.escape(title)}`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"there is no chapter {title}"
    return match[1]


def _options(command: Any) -> set[str]:
    named = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    return named - {"--help"}


@pytest.mark.parametrize("name", sorted(_command_tree()))
def test_every_option_is_documented_and_every_documented_option_exists(name: str) -> None:
    """A command's chapter names exactly the options that the command has."""
    chapter = _chapter(CLI, f"codecfleet {name}".strip())
    tables = re.findall(r"`(--[a-z][a-z-]*)", chapter)
    assert set(tables) - {"--help"} == _options(_command_tree()[name])


def test_every_command_has_a_chapter_and_every_chapter_a_command() -> None:
    """The chapters are the commands."""
    chapters = {
        title.removeprefix("codecfleet").strip() for title in re.findall(r"^## `(codecfleet.*?)`", CLI, re.MULTILINE)
    }
    assert chapters == set(_command_tree())


@pytest.mark.parametrize("name", sorted(_command_tree()))
def test_everything_has_a_help_text(name: str) -> None:
    """Commands, options and arguments explain themselves in a sentence."""
    command = _command_tree()[name]
    assert command.help.rstrip().endswith(".")
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith("."), parameter.name


def _kinds() -> dict[str, type[events.Event]]:
    return {kind.kind: kind for kind in events.Event.__subclasses__()}


def _example(kind: str) -> dict[str, Any]:
    match = re.search(r"```json\n(.*?)\n```", _chapter(EVENTS, kind), re.DOTALL)
    assert match is not None
    assert "\n" not in match[1], "an event is one line"
    example: dict[str, Any] = json.loads(match[1])
    return example


def test_every_event_has_a_chapter_and_every_chapter_an_event() -> None:
    """The chapters are the kinds of events."""
    assert set(re.findall(r"^## `(\w+)`", EVENTS, re.MULTILINE)) == set(_kinds())


@pytest.mark.parametrize("kind", sorted(_kinds()))
def test_the_table_of_an_event_is_its_fields(kind: str) -> None:
    """A chapter's table lists the event's own fields, in their order."""
    shared = {field.name for field in dataclasses.fields(events.Event)}
    own = [field.name for field in dataclasses.fields(_kinds()[kind]) if field.name not in shared]
    assert re.findall(r"^\| `(\w+)` \|", _chapter(EVENTS, kind), re.MULTILINE) == own


@pytest.mark.parametrize("kind", sorted(_kinds()))
def test_the_example_of_an_event_has_its_shape(kind: str) -> None:
    """A chapter's example has exactly the keys that the event prints, in the current schema."""
    example = _example(kind)
    fields = [field.name for field in dataclasses.fields(_kinds()[kind])]
    assert list(example) == ["schema", "event", *fields]
    assert (example["schema"], example["event"]) == (events.SCHEMA_VERSION, kind)


def test_the_schema_version_is_the_documented_one() -> None:
    """The page describes the version that is printed."""
    assert f"this page describes **{events.SCHEMA_VERSION}**" in EVENTS


def test_pages_are_shown_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """As they are written, by the name that help and errors give; a wrong name is answered."""
    assert run(["docs"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert {"cli", "encoders", "nvidia/tegra"} <= listed
    assert run(["docs", "encoders"]) == 0
    assert capsys.readouterr().out == (DOCS / "encoders.md").read_text(encoding="utf-8")
    assert run(["docs", "encoder"]) == 2
    assert "Did you mean encoders?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["transcode", "batch", "plan"])
def test_help_names_pages_that_are_installed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No help names a file of the checkout."""
    assert run([name, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "docs/" not in said
    assert "docs cli: codecfleet docs cli" in said
