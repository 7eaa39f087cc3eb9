"""The reference pages agree with the code."""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from codecfleet.cli.app import program, run
from codecfleet.jobs.report import events
from tests.docs.option_tables import all_commands
from tests.docs.test_option_tables import CHAPTERS

DOCS = Path(__file__).parents[3] / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
EVENTS = (DOCS / "events.md").read_text(encoding="utf-8")


@cache
def _command_tree() -> dict[str, Any]:
    return {"": typer.main.get_command(program()), **all_commands()}


def test_every_command_has_a_chapter_and_every_chapter_a_command() -> None:
    """The chapters are the commands; those without a generated table of options are for commands with only --json."""
    titles = re.findall(r"^## (`codecfleet.*?)$", CLI, re.MULTILINE)
    named = [name.removeprefix("codecfleet").strip() for title in titles for name in re.findall(r"`(.*?)`", title)]
    assert sorted(named) == sorted(_command_tree())
    tables = {name for names in CHAPTERS for name in names}
    flags = {flag for name in set(named) - tables for each in _command_tree()[name].params for flag in each.opts}
    assert {flag for flag in flags if flag.startswith("--")} <= {"--json", "--version"}


@pytest.mark.parametrize("name", sorted(_command_tree()))
def test_everything_has_a_help_text(name: str) -> None:
    """Each command, option and argument has a help text of one sentence."""
    command = _command_tree()[name]
    assert command.help.rstrip().endswith(".")
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith("."), parameter.name


def _kinds() -> dict[str, type[events.Event]]:
    return {kind.kind: kind for kind in events.Event.__subclasses__()}


def _examples() -> list[dict[str, Any]]:
    block = re.search(r"```json\n(.*?)\n```", EVENTS, re.DOTALL)
    assert block is not None
    return [json.loads(line) for line in block[1].splitlines()]


def _event_fields() -> dict[str, list[str]]:
    """Return the fields of each event in the table on the page."""
    chapter = re.search(r"^## The events\n(.*?)(?=^## )", EVENTS, re.MULTILINE | re.DOTALL)
    assert chapter is not None
    fields: dict[str, list[str]] = {}
    for event, names in re.findall(r"^\| `(\w+)`[^|]*\| (`[^|]*) \|", chapter[1], re.MULTILINE):
        fields.setdefault(event, []).extend(re.findall(r"`(\w+)`", names))
    return fields


def test_the_table_of_events_is_the_events() -> None:
    """The table lists each kind of event, with its own fields in their order."""
    shared = {field.name for field in dataclasses.fields(events.Event)}
    assert _event_fields() == {
        name: [field.name for field in dataclasses.fields(kind) if field.name not in shared]
        for name, kind in _kinds().items()
    }


def test_an_example_of_an_event_has_its_shape() -> None:
    """An example of an event has exactly the keys that are printed, in the current schema."""
    for example in _examples():
        fields = [field.name for field in dataclasses.fields(_kinds()[example["event"]])]
        assert list(example) == ["schema", "event", *fields]
        assert example["schema"] == events.SCHEMA_VERSION


def test_the_schema_version_is_the_documented_one() -> None:
    """The page describes the schema version that is printed."""
    assert f"this page describes **{events.SCHEMA_VERSION}**" in EVENTS


def test_pages_are_shown_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Pages are printed as they are written, under the names in help texts and errors."""
    assert run(["docs"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert {"cli", "encoders", "nvidia/tegra"} <= listed
    assert run(["docs", "encoders"]) == 0
    assert capsys.readouterr().out == (DOCS / "encoders.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["transcode", "batch", "plan"])
def test_help_names_pages_that_are_installed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No help text names a file of the checkout."""
    assert run([name, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "docs/" not in said
    assert "such as docs cli, type: codecfleet docs cli" in said


def test_the_example_of_a_token_makes_a_file_for_its_owner_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """In the help as on the page."""
    assert run(["tenants", "--help"]) == 0
    example = "(umask 077; codecfleet tenants token films > films.token)"
    assert example in capsys.readouterr().out
    assert f"`{example}`" in (DOCS / "queue.md").read_text(encoding="utf-8")
