"""Node labels in Ray's syntax, which is the syntax of Kubernetes ("Labels and Selectors", Syntax and character set)."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ...errors import UsageError
from ..probes.report.engines import MEDIA_ENGINES, Direction, Engine
from .model.inventory import Device, DeviceState, Node

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_PREFIX_MAX: Final = 253
PREFIX, RESERVED = "codecfleet/", "ray.io/"
"""The prefixes of codecfleet's labels, and of Ray's labels."""
ENCODES, DECODES = f"{PREFIX}encodes-", f"{PREFIX}decodes-"
"""The prefixes of labels for each codec that a GPU of the node encodes, or decodes."""
KIND, ARCHITECTURE, DLAS = f"{PREFIX}kind", f"{PREFIX}architecture", f"{PREFIX}dlas"
_VERBS: Final = {Direction.ENCODE: ENCODES, Direction.DECODE: DECODES}
_SYNTAX: Final = (
    "Write KEY=VALUE, each with at most 63 letters, digits, `-`, `_` and `.`; KEY may begin with a domain and `/`."
)


def is_label_value(text: str) -> bool:
    """Return whether this value is valid for a node's label."""
    return text == "" or _NAME.fullmatch(text) is not None


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """Return labels from KEY=VALUE strings; a key's last value counts.

    Raises UsageError: a label is invalid or reserved.
    """
    return dict(_label(each) for each in given)


def parse_zone(text: str) -> str:
    """Return the name of a zone; "" for none. Raises UsageError: the name is not a valid label value."""
    if not is_label_value(text):
        raise UsageError(
            f"--zone {text!r} is not the name of a zone", "Write at most 63 letters, digits, `-`, `_` and `.`."
        )
    return text


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    prefix, slash, name = key.rpartition("/")
    fits = not slash or (len(prefix) <= _PREFIX_MAX and _PREFIX.fullmatch(prefix) is not None)
    if not separator or not fits or _NAME.fullmatch(name) is None or not is_label_value(value):
        raise UsageError(f"--label {text!r} is not a label", _SYNTAX)
    if key.startswith(RESERVED):
        raise UsageError(f"--label {text!r}: labels of {RESERVED} are Ray's own", "Use --zone for the zone.")
    return key, value


def labels_of(node: Node, offered: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield labels for the capabilities of a node's ``offered`` devices, except devices in quarantine."""
    able = (device for device in node.gpus if device.state is not DeviceState.QUARANTINED)
    gpus = [device for device in able if device.device in offered]
    found = sorted({case for gpu in gpus for case in _codecs(gpu)})
    engines = {engine for _, engine in found}
    yield KIND, next((kind.value for kind in (Engine.NVENC, Engine.NVDEC) if kind.value in engines), Engine.CPU.value)
    architectures = {gpu.architecture.lower() for gpu in gpus}
    if len(architectures) == 1 and is_label_value(name := architectures.pop()) and name:
        yield ARCHITECTURE, name
    yield from found
    if node.dlas:
        yield DLAS, str(len(node.dlas))


def _codecs(gpu: Device) -> Iterator[tuple[str, str]]:
    """Yield a label for each codec that a GPU's engine supports."""
    for trial in gpu.trials:
        if trial.works and trial.engine in MEDIA_ENGINES and gpu.engine_count(trial.engine):
            yield f"{_VERBS[trial.case.direction]}{trial.case.codec.value}", trial.engine.value
