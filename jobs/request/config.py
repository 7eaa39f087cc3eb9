"""The user's configuration for all jobs: a file, and environment variables, which take precedence (docs/config.md).

``Config`` knows where each value came from. Only the command line and ``Fleet.submit`` load it automatically.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from ...cluster import fleet_variables
from ...cluster.queue.tenants import is_token
from ...cluster.queue.values import has_password, without_password
from ...cluster.toml_file import read_toml
from ...errors import REDACTED, UsageError, redacted
from .layers import Layer, SpecT, spec_of
from .limits import LimitOptions, limit_variables
from .options import FLAG, Option, build, options_of
from .parts import VIDEO, Part, Strict
from .places import CONFIG_VARIABLE, SENT_VARIABLE, SentFiles, config_path, presets_folder
from .presets import PRESETS, PresetChoice, preset_named
from .running import Journaling, RunOptions, Segmenting, WaitOptions
from .spec_file import KEYS, SpecFile
from .spellings import name_for

PREFIX: Final = "CODECFLEET_"  #: The prefix of environment variables; the key follows in capitals
_CLUSTER_VARIABLE: Final = "RAY_ADDRESS"
_BY_KUBERNETES: Final = re.compile(r"CODECFLEET_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
"""Variables that Kubernetes sets in every pod for a service whose name starts with codecfleet."""
_HELP: Final = "docs/config.md lists the keys of the configuration."
_SCHEMA: Final = 1
#: The digits of a fractional time that is written as text: more than the parser accepts, so none is lost
_DIGITS_MAX: Final = 40
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}


class _PresetOption(Part):
    preset: Annotated[
        PresetChoice | None,
        Field(
            description="A speed from 1 (fastest) to 7 (slowest, smallest output), or x264's name for it: "
            "docs/encoders.md; a preset's name: docs/config.md; or a speed and a name."
        ),
        Option("--preset", VIDEO, default="4", example='"web-h264"', kind=PRESETS),
    ] = None


class _FleetOptions(Part):
    address: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The Ray cluster to use: host:port, auto for the one on this machine, or local for this "
            "machine only: docs/fleet.md.",
        ),
        Option("--address", default="the environment's RAY_ADDRESS, else this machine", metavar="RAY_ADDRESS"),
    ] = None
    queue: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The queue of submitted jobs: a file, or a database such as postgresql://HOST/NAME: "
            "docs/queue.md.",
        ),
        Option("", default="this user's on this machine"),
    ] = None
    queue_token: Annotated[
        str | None,
        Field(min_length=1, description="File with your token for the queue (see docs/queue.md)."),
        Option("", default="no token"),
    ] = None
    policy: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Policy file of a cluster, read by the driver that starts its supervisor: docs/placement.md.",
        ),
        Option("", default="configs/policy.toml"),
    ] = None
    autoscale: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Autoscaling file of a cluster, read by the driver that starts its supervisor: "
            "docs/autoscaling.md.",
        ),
        Option("", default="no autoscaling"),
    ] = None
    idle_s: Annotated[
        Fraction,
        Field(
            ge=0,
            description="Time after which a cluster's unused worker is released; read by the driver that starts the "
            "supervisor: docs/supervisor.md.",
        ),
        Option(""),
    ] = Fraction(30)
    ray: Annotated[
        Literal["late", "first"],
        Field(
            description="When a private Ray starts: late, when it saves time; or first, so that all work runs on it: "
            "docs/speed.md."
        ),
        Option(""),
    ] = "late"
    warm: Annotated[
        Literal["auto", "never"],
        Field(description="Whether jobs on this machine use a warm fleet if one is up: docs/fleet.md."),
        Option(""),
    ] = "auto"
    cuda_compat: Annotated[
        str | None,
        Field(
            min_length=1,
            description="A further folder to search for a CUDA compat package; `never` allows no package: "
            "docs/nodes.md.",
        ),
        Option("", default="only /usr/local/cuda*/compat and the library path are searched"),
    ] = None
    sandbox: Annotated[
        Literal["auto", "required", "off"],
        Field(
            description="Confine a command's processes to its files, without network: where possible (auto), always "
            "(required) or never (off): docs/security.md."
        ),
        Option(""),
    ] = "auto"
    log: Annotated[
        Literal["text", "json", "off"] | None,
        Field(
            description="How a cluster's supervisor and workers write their logs; with text or json, a command "
            "writes a log too, to stderr instead of progress: docs/logs.md."
        ),
        Option("", default="text; a command writes no log"),
    ] = None
    debug: Annotated[bool, Field(description="Print the traceback before an error's line."), Option("")] = False


# The fields of a later base class come first.
class Settings(LimitOptions, _FleetOptions, Journaling, WaitOptions, RunOptions, Segmenting, _PresetOption):
    """The settings for all jobs: how and where they run. docs/config.md lists the fields."""

    strict: Strict = False


OPTIONS: Final = options_of(Settings)
_FIELDS: Final = {option.key: field for field, option in OPTIONS.items()}


class OriginKind(StrEnum):
    """The kind of place where a value was set."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The origin of a value. ``place`` is a file and line, a variable, or "" for a default."""

    kind: OriginKind = OriginKind.DEFAULT
    place: str = ""

    def spelled(self, key: str) -> str:
        """Return a key as the user wrote it: with file and line, or as the variable's name."""
        return f"{key} ({self.place})" if self.kind is OriginKind.FILE else self.place


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration, and where its values came from."""

    settings: Settings
    origins: Mapping[str, ValueOrigin]  #: The origin of each field that was set
    path: Path | None  #: The file's path; None for a user without a home
    is_there: bool  #: Whether the file exists and can be read
    own_presets: Path | None  #: The folder of the user's presets; None for a user without a home
    #: Files whose content replaces that of the files with the same names on this machine
    sent: SentFiles = field(default_factory=SentFiles)

    def origin(self, field: str) -> ValueOrigin:
        """Return where a field's value came from."""
        return self.origins.get(field, ValueOrigin())

    def spell(self, field: str) -> str:
        """Return a field's name in the user's spelling."""
        return self.origin(field).spelled(OPTIONS[field].key)

    def to_json(self) -> dict[str, Any]:
        """Return the file's path and each key's value and origin, as JSON values."""
        keys = [
            {
                "key": option.key,
                "value": _shown(field, _plain(getattr(self.settings, field))),
                "origin": self.origin(field).kind.value,
                "place": self.origin(field).place,
                "default": option.default or _plain(Settings.model_fields[field].default),
            }
            for field, option in OPTIONS.items()
        ]
        path = None if self.path is None else str(self.path)
        return {"schema": _SCHEMA, "path": path, "is_there": self.is_there, "keys": keys}

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which other processes of codecfleet read these settings."""
        values = {
            fleet_variables.IDLE: ("idle_s", str(float(self.settings.idle_s))),
            fleet_variables.POLICY: ("policy", self.settings.policy or ""),
            fleet_variables.AUTOSCALE: ("autoscale", self.settings.autoscale or ""),
            fleet_variables.QUEUE: ("queue", self.settings.queue or ""),
            fleet_variables.RAY: ("ray", self.settings.ray),
            fleet_variables.WARM: ("warm", self.settings.warm),
            fleet_variables.COMPAT: ("cuda_compat", self.settings.cuda_compat or ""),
            fleet_variables.LOG: ("log", self.settings.log or ""),
            fleet_variables.DEBUG: ("debug", str(int(self.settings.debug))),
            **limit_variables(self.settings),
        }
        if has_password(self.settings.queue or ""):
            del values[fleet_variables.QUEUE]  # every process of a node could read the password
        return {variable: value for variable, (field, value) in values.items() if field in self.origins}

    def layer(self, model: type[BaseModel]) -> Layer:
        """Return the fields of a model that were set, except the preset, whose options ``spec`` adds."""
        fields = [field for field in self.origins if field in model.model_fields and field != "preset"]
        return Layer({field: getattr(self.settings, field) for field in fields}, self.spell)

    def spec(
        self,
        model: type[SpecT],
        given: Layer,
        *,
        choice: PresetChoice | None = None,
        spec_file: str | None = None,
        next_step: str = _HELP,
    ) -> SpecT:
        """Return the spec of a job or batch: ``given`` overrides a spec file, a preset and this configuration.

        ``choice`` is the value of ``--preset``, ``spec_file`` the value of ``--spec``. If neither is given, the
        configuration's preset applies. ``next_step`` is the advice for options that conflict.

        Raises:
            UsageError: there is no such preset; a file or an option is invalid.
        """
        return spec_of(model, [self.layer(model), *self._below(choice, spec_file), given], next_step)

    def _below(self, choice: PresetChoice | None, spec_file: str | None) -> Iterator[Layer]:
        asked_by, chosen = "--preset", choice
        if choice is None and spec_file is None:
            asked_by, chosen = self.spell("preset"), self.settings.preset
        chosen = chosen or PresetChoice()
        if chosen.name is not None:
            yield self._preset(chosen.name, asked_by).layer
        if spec_file is not None:
            yield SpecFile.read(spec_file, self.sent.specs.get(spec_file)).layer
        if chosen.speed is not None:
            yield Layer({"preset": chosen.speed}, lambda _: asked_by)

    def _preset(self, name: str, asked_by: str) -> SpecFile:
        if name in self.sent.presets:
            return SpecFile.read(f"{name}.toml", self.sent.presets[name])
        return SpecFile.read(preset_named(name, self.own_presets, asked_by).path)


def load_config(environment: Mapping[str, str] = os.environ) -> Config:
    """Return the user's configuration from its file and ``environment``.

    Raises UsageError: the file cannot be read or is not TOML; a key or variable is unknown, or its value is wrong.
    """
    path = config_path(environment)
    is_there = path is not None and os.access(path, os.F_OK)
    origins: dict[str, ValueOrigin] = {}
    values: dict[str, Any] = {}
    in_file = _in_file(path) if path is not None and (is_there or environment.get(CONFIG_VARIABLE)) else ()
    for key, raw, origin in (*in_file, *_in_environment(environment)):
        field = _FIELDS[key]
        values[field] = OPTIONS[field].kind.read(origin.spelled(key), raw)
        origins[field] = origin
    settings = build(
        Settings, values, lambda field: origins.get(field, ValueOrigin()).spelled(OPTIONS[field].key), _HELP
    )
    return Config(settings, origins, path, is_there, presets_folder(environment), SentFiles.of(environment))


def _in_file(path: Path) -> Iterator[tuple[str, Any, ValueOrigin]]:
    wrong = 'Write text in quotes: device = "cpu".'
    file = read_toml("configuration", path, missing="Check the path.", wrong=wrong, parse_float=str)
    for key, raw in file.tables.items():
        if key not in _FIELDS:
            raise _unknown(f"{file.place(key)}: there is no key {key}", key, _FIELDS)
        yield key, raw, ValueOrigin(OriginKind.FILE, file.place(key))


def _in_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Any, ValueOrigin]]:
    keys = {_variable(key): key for key in _FIELDS}
    inner = (fleet_variables.EVENTS, fleet_variables.FAILURE, fleet_variables.KEEPER)
    known = *keys, CONFIG_VARIABLE, SENT_VARIABLE, *inner
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _BY_KUBERNETES.fullmatch(name):
            key = name.removeprefix(PREFIX).lower()
            raise _unknown(f"there is no variable {name}", key, [*_FIELDS, "config"], _variable)
    if _CLUSTER_VARIABLE in environment:
        keys = {_CLUSTER_VARIABLE: "address", **keys}
    for name, key in keys.items():
        if raw := environment.get(name, ""):
            is_flag = OPTIONS[_FIELDS[key]].kind is FLAG
            yield key, _FLAGS.get(raw, raw) if is_flag else raw, ValueOrigin(OriginKind.ENVIRONMENT, name)


def _plain(value: object) -> object:
    """Return a value for TOML and JSON. Fractions of a second become text, which keeps every digit."""
    match value:
        case PresetChoice(name=name, speed=speed):
            given = [each for each in (name, speed) if each is not None]
            return given[0] if len(given) == 1 else given
        case Fraction():
            with localcontext(prec=_DIGITS_MAX):
                return int(value) if value.denominator == 1 else f"{Decimal(value.numerator) / value.denominator:f}"
        case _:
            return value


def _shown(field: str, value: object) -> object:
    """Return the value of a field without secrets."""
    if not isinstance(value, str):
        return value
    if field == "queue_token" and is_token(value):  # the token itself instead of its file's name
        return REDACTED
    return without_password(value) if field == "queue" else redacted(value)


def _unknown(message: str, key: str, known: Iterable[str], spell: Callable[[str], str] = str) -> UsageError:
    """Return the error for an unknown key; ``spell`` spells the key that it suggests."""
    if key in KEYS:
        return UsageError(message, "Put options of the output into a preset or a spec file: docs/config.md.")
    near = name_for(key, known, {})
    return UsageError(message, f"Did you mean {spell(near)}?" if near else _HELP)


def _variable(key: str) -> str:
    return f"{PREFIX}{key.upper()}"
