"""The options as the documents show them, made from the models and the commands that have them."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import typer

from codecfleet.cli.app import program
from codecfleet.jobs.request.config import OPTIONS, Settings
from codecfleet.jobs.request.options import Option, options_of
from codecfleet.jobs.request.presets import find_presets
from codecfleet.jobs.request.spec import TranscodeSpec

_TEMPLATE_HEAD = """\
# Every key of a spec file, with its default. Copy it, change what you need, and leave the rest out:
#
#     codecfleet transcode film.mkv film.mp4 --spec my.toml
#
# An option on the command line counts instead of the file's key. Keys without a default are commented out and show an
# example. docs/config.md explains every one.
"""
_EXPLAINED_BY = {
    **dict.fromkeys(("plan", "batch", "resume", "verify", "stills", "infer"), "transcode"),
    **dict.fromkeys(("nodes", "devices"), "doctor"),
    **dict.fromkeys(("cordon", "uncordon", "node drain"), "drain"),
    "top": "status",
    "node env": "node start",
    "node list": "nodes",
}
"""The command whose chapter explains options that others share with it."""
_KEYS = {field: option for field, option in options_of(TranscodeSpec).items() if option.key}


def key_table() -> str:
    """Return the table of docs/config.md: the keys of a spec file; docs/cli.md says what they mean."""
    rows = (
        f"| `{option.key}` | {_field(field, option)}| {option.kind.values} | {_default(field)} |"
        for field, option in _KEYS.items()
    )
    return "\n".join(["| key | field | value | default |", "|---|---|---|---|", *rows])


def config_table() -> str:
    """Return the table of docs/config.md: the keys of the configuration."""
    rows = (
        f"| `{option.key}` | {option.kind.values} | {_config_default(field, option)} | "
        f"{_linked(option.help.rstrip('.'), _key)} |"
        for field, option in OPTIONS.items()
    )
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _config_default(field: str, option: Option) -> str:
    default = Settings.model_fields[field].default
    return _linked(option.default or "none", _key) if default is None else f"`{_toml_value(default)}`"


def preset_table() -> str:
    """Return the table of docs/presets.md: the presets that ship."""
    rows = (
        f"| [`{each.name}`](../configs/presets/{each.name}.toml) | {each.codec} | {each.summary} |"
        for each in find_presets(None).values()
    )
    return "\n".join(["| preset | codec | for |", "|---|---|---|", *rows])


def template() -> str:
    """Return configs/transcode.toml: each key with its default, or commented out with an example."""
    lines = [_TEMPLATE_HEAD]
    for panel, keys in groupby(_KEYS.items(), lambda item: item[1].panel):
        lines.append(f"# {panel}\n")
        for field, option in keys:
            none = TranscodeSpec.model_fields[field].default is None
            default = f" Default: {option.default}." * (none and bool(option.default))
            lines.append(f"# {re.sub(r'--[a-z-]+', lambda flag: _key(flag[0]), option.help)}{default}")
            lines.append(f"{'#' * none}{option.key} = {option.example if none else _toml(field)}\n")
    return "\n".join(lines)


def all_commands() -> dict[str, Any]:
    """Return the commands by name, those of a group with its name before theirs."""
    found: dict[str, Any] = dict(typer.main.get_command(program()).commands)  # type: ignore[attr-defined]
    groups = {name: command.commands for name, command in found.items() if hasattr(command, "commands")}
    return found | {f"{name} {own}": command for name, group in groups.items() for own, command in group.items()}


def command_table(name: str) -> str:
    """Return the table of a command's chapter in docs/cli.md; options that another chapter explains are only named."""
    commands = all_commands()
    own = [each for each in commands[name].params if each.opts[0].startswith("--")]
    base = _EXPLAINED_BY.get(name, "")
    explained = {(other.opts[0], other.help) for other in (commands[base].params if base else ())}
    shared = [each for each in own if (each.opts[0], each.help) in explained]
    own = [each for each in own if each not in shared]
    flags = ", ".join(f"`{flag}`" for each in shared for flag in each.opts)
    anchor = base.replace(" ", "-")
    head = [f"As for [`{base}`](#codecfleet-{anchor}): {flags}.", *[""][: len(own)]] if shared else []
    head += ["| option | default | meaning |", "|---|---|---|"] if own else []
    return "\n".join([*head, *_in_panels(((each.rich_help_panel, _row(each)) for each in own), columns=3)])


def _row(parameter: Any) -> str:
    meaning, _, default = parameter.help.rstrip(".").partition(". Default: ")
    default = default or ("required" if parameter.required else "off" if parameter.is_flag else "none")
    written = " ".join(filter(None, (parameter.opts[0], (parameter.metavar or "").replace("|", "\\|"))))
    return f"| `{written}` | {_linked(default, str)} | {_linked(meaning, str)} |"


def _in_panels(rows: Iterable[tuple[str | None, str]], columns: int) -> Iterator[str]:
    found = list(rows)
    for panel in dict.fromkeys(panel for panel, _ in found):
        yield from [f"| **{panel}** |{' |' * (columns - 1)}"] if panel else []
        yield from (row for each, row in found if each == panel)


def _field(field: str, option: Option) -> str:
    return "" if field == option.key else f"`{field}` "


def _default(field: str) -> str:
    none = TranscodeSpec.model_fields[field].default is None
    return _linked(_KEYS[field].default or "none", _key) if none else f"`{_toml(field)}`"


def _toml(field: str) -> str:
    return _toml_value(TranscodeSpec.model_fields[field].default)


def _toml_value(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return {str: f'"{default}"', tuple: "{}"}.get(type(default), str(default))


def _key(flag: str) -> str:
    return next((option.key for option in _KEYS.values() if option.flag == flag), flag)


def _linked(text: str, spell: Callable[[str], str]) -> str:
    spelled = re.sub(r"--[a-z-]+|[A-Z]+_[A-Z]+", lambda name: f"`{spell(name[0])}`", text)
    return re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", spelled)
