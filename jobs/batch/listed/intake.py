"""Turns inputs into the entries of a run, one at a time, with checked options and output names."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....errors import UsageError
from ...request.spec import BatchSpec
from ..files import joined, with_suffix_of
from ..store.listing import ListedEntry
from ..store.schema import EntryAction
from .places import Listed
from .specs import EntrySpecs
from .template import Template, below_root, check_relative

_BESIDE_DATABASE: Final = ("", "-wal", "-shm")


class Intake:
    """Turns listed inputs into entries; ``left_out`` counts files without a video extension."""

    def __init__(self, batch: BatchSpec, specs: EntrySpecs, database: Path) -> None:
        self.left_out = 0
        self._batch = batch
        self._specs = specs
        self._template = Template.parse(batch.output_template)
        self._own = frozenset(f"{database}{suffix}" for suffix in _BESIDE_DATABASE)

    def entries(self, listed: Iterable[Listed]) -> Iterator[ListedEntry]:
        """Yield the entries. Raises UsageError: a name or option is invalid, or an output is not allowed."""
        for each in listed:
            if each.source in self._own:
                continue
            if not each.is_video and not self._batch.mirror:
                self.left_out += 1
                continue
            try:
                yield self._entry(each)
            except UsageError as error:
                place = f"{each.row.place}: " if each.row.place else ""
                raise UsageError(f"{place}{error.message}", error.next_step) from None

    def _entry(self, listed: Listed) -> ListedEntry:
        output = self._output(listed)
        _check_text(listed.source)
        _check_text(output)
        if joined(self._batch.output, output) in self._own:
            message = f"the output of {listed.source} would replace the batch's own database"
            raise UsageError(message, "Choose another --database, or leave this input out.")
        return ListedEntry(
            output=output,
            source=listed.source,
            action=EntryAction.TRANSCODE if listed.is_video else EntryAction.COPY,
            overrides=listed.row.overrides,
            spec_sha256=self._specs.digest(listed.row.overrides) if listed.is_video else "",
            source_bytes=listed.size_bytes,
            copy=self._copy(listed, output),
            place=listed.row.place,
        )

    def _copy(self, listed: Listed, output: str) -> str | None:
        """Return the name of an input's copy (``--if-smaller``, ``--mirror``), if it differs from the output's name."""
        may_be_copied = self._batch.mirror or self._specs.may_keep(listed.row.overrides)
        name = with_suffix_of(listed.source, output)
        is_other = name != output and joined(self._batch.output, name) != listed.source
        return name if listed.is_video and may_be_copied and is_other else None

    def _output(self, listed: Listed) -> str:
        if not listed.is_video:
            return below_root(listed.name.path, listed.name.path)
        if listed.row.output:
            check_relative(listed.row.output, "the output")
            return below_root(listed.row.output, listed.row.output)
        if ".." in listed.name.path.split("/"):
            message = f"{listed.source} has a part .. in its path, so its output would be outside the output folder"
            raise UsageError(message, "Rename the file, or leave it out and name its output in a list.")
        return self._template.output(listed.name)


def _check_text(name: str) -> None:
    """Refuse a name that is not UTF-8. Linux allows any bytes in a name, and JSON allows lone surrogates."""
    with suppress(UnicodeEncodeError):
        name.encode()
        return
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        message = f"the name {name!r} contains half of a surrogate pair"
        raise UsageError(message, "Write the character itself, or both of its \\u escapes.") from None
    with suppress(UnicodeDecodeError):
        message = f"the name {encoded.decode()!r} is UTF-8, but this program's locale is not"
        raise UsageError(message, "Set a UTF-8 locale, such as LC_ALL=C.UTF-8, and do not set PYTHONUTF8=0.")
    message = f"the name {name!r} is not UTF-8, which the batch's database requires"
    raise UsageError(message, "Rename the file, or move it elsewhere.")
