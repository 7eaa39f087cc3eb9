"""Makes the spec of each entry: the options in the list take precedence over those of the batch. Pure."""

import hashlib
import json
from functools import lru_cache
from typing import Any, Final

from ...journal.header import BESIDE_BYTES, read_beside
from ...request.layers import left_by
from ...request.options import build, options_of
from ...request.spec import BatchSpec, JobOptions, TranscodeSpec
from .manifest import override_fields

_NOTHING: Final = "-"  #: A placeholder for input and output when only the options matter
_BESIDE_OUTPUT: Final = (BESIDE_BYTES | {"source", "output", "device"}) - {"if_smaller"}
"""Options that can change without making an output outdated."""
_DIFFERENT_KEPT: Final = 4096  #: How many specs are cached; a list with more distinct overrides takes longer


class EntrySpecs:
    """Builds the specs of entries, and caches them by overrides."""

    def __init__(self, batch: BatchSpec) -> None:
        self._batch = {name: getattr(batch, name) for name in JobOptions.model_fields if name in batch.model_fields_set}
        self._fields = lru_cache(_DIFFERENT_KEPT)(self._fields_of)
        self.digest = lru_cache(_DIFFERENT_KEPT)(self._digest)

    def spec(self, overrides: str, source: str, output: str) -> TranscodeSpec:
        """Return an entry's spec.

        Raises UsageError: the entry's options are invalid, or conflict with those of the batch.
        """
        return _built(self._fields(overrides) | {"source": source, "output": output})

    def may_keep(self, overrides: str) -> bool:
        """Return whether an entry's input is copied if the result is not smaller."""
        return bool(self._fields(overrides).get("if_smaller", False))

    def _fields_of(self, overrides: str) -> dict[str, Any]:
        given = override_fields(overrides)
        return left_by(self._batch, given) | given

    def _digest(self, overrides: str) -> str:
        """Return the SHA-256 of the options of an output.

        Defaults are left out, so a new option in a later version changes no digest.

        Raises UsageError: as in ``spec``; InputError: the overlay picture or the subtitle font cannot be read.
        """
        spec = self.spec(overrides, _NOTHING, _NOTHING)
        fields = spec.model_dump(mode="json", exclude_defaults=True)
        stated = {name: value for name, value in fields.items() if name not in _BESIDE_OUTPUT}
        stated |= {name: digest for name, digest in read_beside(spec).items() if digest is not None}
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


def _built(fields: dict[str, Any]) -> TranscodeSpec:
    options = options_of(TranscodeSpec)
    return build(TranscodeSpec, fields, lambda field: options[field].key or field, "docs/config.md lists the keys.")
