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


def _cli_chapters() -> dict[str, str]:
    """Return the chapters of docs/cli.md by command; several commands may share one."""
    found = re.findall(r"^## (`codecfleet.*?)\n(.*?)(?=^## |\Z)", CLI, re.MULTILINE | re.DOTALL)
    return {
        name.removeprefix("codecfleet").strip(): chapter
        for title, chapter in found
        for name in re.findall(r"`(.*?)`", title)
    }


@pytest.mark.parametrize("name", sorted(_command_tree()))
def test_every_option_is_documented(name: str) -> None:
    """A command's chapter names each of its options, or says that it takes all of transcode's."""
    chapter = _cli_chapters()[name]
    documented = set(re.findall(r"`(--[a-z][a-z-]*)", chapter))
    if "ll options of [`transcode`]" in chapter:
        documented |= _options(_command_tree()["transcode"])
    assert _options(_command_tree()[name]) <= documented


@pytest.mark.parametrize("chapter", sorted(set(_cli_chapters().values())), ids=lambda text: text.strip()[:20])
def test_every_documented_option_exists(chapter: str) -> None:
    """A chapter names no option but those of its commands."""
    commands = [name for name, text in _cli_chapters().items() if text == chapter]
    known = {flag for name in commands for flag in _options(_command_tree()[name])}
    named = set(re.findall(r"`(--[a-z][a-z-]*)", re.sub(r" but `.*?\.", "", chapter)))
    assert named - {"--help", "--version"} <= known


def test_every_command_has_a_chapter_and_every_chapter_a_command() -> None:
    """The chapters are the commands."""
    assert set(_cli_chapters()) == set(_command_tree())


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
    block = re.search(r"```json\n(.*?)\n```", EVENTS, re.DOTALL)
    assert block is not None
    found = [each for line in block[1].splitlines() if (each := json.loads(line))["event"] == kind]
    assert len(found) == 1
    example: dict[str, Any] = found[0]
    return example


def _event_fields() -> dict[str, list[str]]:
    """Return the fields of each event in the page's table."""
    chapter = re.search(r"^## The events\n(.*?)(?=^## )", EVENTS, re.MULTILINE | re.DOTALL)
    assert chapter is not None
    fields: dict[str, list[str]] = {}
    for event, names in re.findall(r"^\| (?:`(\w+)`[^|]*)?\| (`[^|]*) \|", chapter[1], re.MULTILINE):
        if event:
            fields[event] = []
        fields[list(fields)[-1]] += re.findall(r"`(\w+)`", names)
    return fields


def test_the_table_of_events_is_the_events() -> None:
    """It lists each kind, with the event's own fields in their order."""
    shared = {field.name for field in dataclasses.fields(events.Event)}
    assert _event_fields() == {
        name: [field.name for field in dataclasses.fields(kind) if field.name not in shared]
        for name, kind in _kinds().items()
    }


@pytest.mark.parametrize("kind", sorted(_kinds()))
def test_the_example_of_an_event_has_its_shape(kind: str) -> None:
    """The example has exactly the keys that the event prints, in the current schema."""
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
