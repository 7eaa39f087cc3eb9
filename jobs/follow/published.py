"""Publishes a growing package: segments first, then playlists, each of which replaces its predecessor in one step."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...actors.media.location import is_local, local_path
from ...errors import OutputExists
from ..join.publish import check_folder_of, check_output, publish
from ..join.spool import storage_error
from ..ladder.publish import files_in
from ..package.names import MASTER


@dataclass(frozen=True, slots=True)
class LiveFolder:
    """The folder of a ladder that players read while it grows. ``folder`` holds its files on this machine."""

    output: str
    folder: Path

    @classmethod
    def of(cls, output: str, work: Path) -> "LiveFolder":
        """Return the folder itself, or for a store a copy of it in ``work``."""
        return cls(output, local_path(output) if is_local(output) else work / "package")

    def begin(self, source: str, *, is_ours: bool) -> None:
        """Create the folder. Raises OutputExists: there are files already; OutputUnwritable; StorageFailed."""
        if is_local(self.output):
            check_folder_of(self.folder)
            found = [each.name for each in self.folder.iterdir()] if self.folder.is_dir() else []
        else:
            check_output(source, f"{self.output.rstrip('/')}/{MASTER}", overwrite=True)
            found = list(files_in(self.output))
        if found and not is_ours:
            message = f"{self.output} holds {min(found)} already"
            raise OutputExists(message, "Choose another name: --follow adds to its own folder only.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self.folder) from error

    def segments(self, names: Iterable[str]) -> None:
        """Publish segments and headers, which are in ``folder``. Raises StorageFailed."""
        if not is_local(self.output):
            for name in names:
                publish(self.folder / name, f"{self.output.rstrip('/')}/{name}", overwrite=True)

    def texts(self, texts: dict[str, str]) -> None:
        """Write manifests in their order. Raises StorageFailed."""
        for name, text in texts.items():
            path = self.folder / name
            aside = path.with_name(f".{name}.new")
            try:
                aside.write_text(text, encoding="utf-8")
                aside.replace(path)
            except OSError as error:
                raise storage_error(error, path) from error
        self.segments(texts)
