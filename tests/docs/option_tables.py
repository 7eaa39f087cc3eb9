"""Tables of the documents, made from the code that has their rows: options, keys, presets, metrics, log actions."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

import typer

from codecfleet.cli.app import program
from codecfleet.cluster.logs.actions import LEVELS, LogAction
from codecfleet.cluster.supervisor.metrics.table import ANY, METRICS, Metric, MetricKind
from codecfleet.jobs.request.config import OPTIONS, Settings
from codecfleet.jobs.request.limits import LimitOptions
from codecfleet.jobs.request.options import Option, options_of
from codecfleet.jobs.request.presets import find_presets
from codecfleet.jobs.request.spec import TranscodeSpec

_TEMPLATE_HEAD = """\
# Every key of a spec file, with its default. Copy it, change what you need, and leave the rest out:
#
#     codecfleet transcode film.mkv film.mp4 --spec my.toml
#
# An option on the command line overrides the file's key. Keys without a default are commented out and show an
# example. docs/config.md explains every key.
"""
_RULE_HEAD = """\
# Written by `make docs` from deploy/prometheus/alerts.yaml: change that file.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: codecfleet
spec:
"""
_EXPLAINED_BY = dict.fromkeys(("plan", "batch", "resume", "verify", "ladder", "stills", "infer"), "transcode")
"""The command whose chapter explains options that others share with it."""
_JSON = "Print one JSON document, for programs."
FEW_ROWS = 25
"""A table of up to this many options has no rows with the names of their groups."""
_KEYS = {field: option for field, option in options_of(TranscodeSpec).items() if option.key}


def key_table() -> str:
    """Return the table of docs/config.md: the keys of a spec file by what they take, or whose field has another name.

    What docs/cli.md shows as it is written, a word or a size in quotes, is left out.
    """
    by_values: dict[str, list[str]] = {}
    for field, option in _KEYS.items():
        own = "" if field == option.key else f" (`{field}`)"
        if own or '"' not in option.kind.values:
            by_values.setdefault(option.kind.values, []).append(f"`{option.key}`{own}")
    rows = (f"| {values} | {', '.join(keys)} |" for values, keys in by_values.items())
    return "\n".join(["| value | keys |", "|---|---|", *rows])


def config_table() -> str:
    """Return the table of docs/config.md: the keys of the configuration, those of a spec file by name alone."""
    shared = [option.key for field, option in OPTIONS.items() if field in _KEYS and field != "preset"]
    rows = (
        f"| `{option.key}` | {option.kind.values} | {_config_default(field, option)} | "
        f"{_linked(option.help.rstrip('.'), _key)} |"
        for field, option in OPTIONS.items()
        if option.key not in shared and field not in LimitOptions.model_fields
    )
    names = ", ".join(f"`{key}`" for key in shared)
    return "\n".join(
        [f"As in a spec file: {names}. And:", "", "| key | value | default | meaning |", "|---|---|---|---|", *rows]
    )


def _config_default(field: str, option: Option) -> str:
    default = Settings.model_fields[field].default
    return _linked(option.default or "none", _key) if default is None else f"`{_toml_value(default)}`"


def preset_table() -> str:
    """Return the table of docs/config.md: the presets that ship."""
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


@cache
def all_commands() -> dict[str, Any]:
    """Return the commands by name, those of a group with its name before theirs."""
    found: dict[str, Any] = dict(typer.main.get_command(program()).commands)  # type: ignore[attr-defined]
    groups = {name: command.commands for name, command in found.items() if hasattr(command, "commands")}
    return found | {f"{name} {own}": command for name, group in groups.items() for own, command in group.items()}


def command_table(*names: str) -> str:
    """Return the table of a chapter in docs/cli.md, of one or more commands.

    Options that the chapter of ``transcode`` explains, and the usual ``--json``, are only named.
    """
    commands = all_commands()
    shared = {name: _shared(commands[name], commands.get(_EXPLAINED_BY.get(name, ""))) for name in names}
    rows: dict[str, list[str]] = {}
    panels: dict[str, str | None] = {}
    for name in names:
        for each in _flags(commands[name]).values():
            if each.opts[0] not in shared[name] and each.help != _JSON:
                rows.setdefault(_row(each), []).append(f"`{name}`")
                panels[_row(each)] = each.rich_help_panel
    as_json = [f"`{name}`" for name in names if any(each.help == _JSON for each in commands[name].params)]
    head = [_named_only(name, flags, is_one=len(names) == 1) for name, flags in shared.items() if flags]
    whose = f" ({', '.join(as_json)})" if len(as_json) < len(names) else ""
    head += [f"`--json`{whose} prints one JSON document."] if as_json else []
    lines = [" ".join(head)]
    if rows and len(names) > 1:
        lines += ["", "| option | default | meaning | command |", "|---|---|---|---|"]
        lines += [f"{row} {', '.join(of)} |" for row, of in rows.items()]
    elif rows:
        lines += ["", "| option | default | meaning |", "|---|---|---|"]
        lines += _in_panels(((panels[row], row) for row in rows), columns=3) if len(rows) > FEW_ROWS else rows
    return "\n".join(lines).strip()


def _flags(command: Any) -> dict[str, Any]:
    return {each.opts[0]: each for each in command.params if each.opts[0].startswith("--")}


def _shared(command: Any, base: Any) -> list[str]:
    explained = {} if base is None else {flag: each.help for flag, each in _flags(base).items()}
    return [flag for flag, each in _flags(command).items() if explained.get(flag) == each.help != _JSON]


def _named_only(name: str, shared: list[str], *, is_one: bool) -> str:
    """Return the sentence that names the options that ``transcode`` explains, or those of its own that are missing."""
    missing = [flag for flag in _flags(all_commands()["transcode"]) if flag not in shared]
    takes = "" if is_one else f"`{name}`: "
    link = "[`transcode`](#codecfleet-transcode)"
    if len(missing) < len(shared) / 2:
        return f"{takes}{'all' if takes else 'All'} options of {link} but {', '.join(f'`{flag}`' for flag in missing)}."
    named = ", ".join(f"`{flag}`" for flag in shared)
    return f"{takes}{'as' if takes else 'As'} for {link}: {named}."


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


def _toml(field: str) -> str:
    return _toml_value(TranscodeSpec.model_fields[field].default)


def _toml_value(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return {str: f'"{default}"', tuple: "{}"}.get(type(default), str(default))


def _key(flag: str) -> str:
    return next((option.key for option in _KEYS.values() if option.flag == flag), flag)


def _linked(text: str, spell: Callable[[str], str]) -> str:
    spelled = re.sub(r"--[a-z-]+|[A-Z]+(?:_[A-Z]+)+", lambda name: f"`{spell(name[0])}`", text)
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", spelled)


def metric_table() -> str:
    """Return the table of docs/metrics.md."""
    rows = (f"| `{metric.name}` | {metric.kind.value} | {_labels(metric)} | {_says(metric)} |" for metric in METRICS)
    return "\n".join(["| metric | type | labels | what it says |", "|---|---|---|---|", *rows])


def prometheus_rule(alerts: str) -> str:
    """Return the resource of Prometheus Operator that has the alerts of a rule file."""
    return _RULE_HEAD + textwrap.indent(alerts, "  ")


def action_table() -> str:
    """Return the table of docs/logs.md: actions that an operator looks for; those of level info are named alone."""
    named = ", ".join(f"`{action.word}`" for action in LogAction if LEVELS[action.level] == "info")
    rows = (
        f"| `{action.word}` | {LEVELS[action.level]} | {action.says} |"
        for action in LogAction
        if LEVELS[action.level] != "info"
    )
    table = ["| action | level | what happened |", "|---|---|---|", *rows]
    return "\n".join([*textwrap.wrap(f"Of level `info`: {named}.", 127, break_on_hyphens=False), "", *table])


def _labels(metric: Metric) -> str:
    """Return its labels; the page explains the values of a worker's `engine` once."""
    return "; ".join(
        f"`{label}`" if values in (ANY, ("cpu", "gpu", "dla")) else f"`{label}`: {', '.join(values)}"
        for label, values in metric.labels.items()
    )


def _says(metric: Metric) -> str:
    bounds = ", ".join(f"{bound:g}" for bound in metric.bounds)
    return f"{metric.says}; buckets to {bounds} s" if metric.kind is MetricKind.HISTOGRAM else metric.says
