"""Publishes a growing package: segments first, then playlists, each of which replaces its predecessor in one step."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...actors.media.location import is_local, local_path
from ...errors import OutputExists, OutputUnwritable
from ..join.publish import check_folder_of, check_output, publish
from ..join.spool import storage_error
from ..ladder.publish import files_in
from ..ladder.report import INDEX
from ..package.names import MANIFEST, MASTER


@dataclass(frozen=True, slots=True)
class LiveFolder:
    """The folder of a ladder that players read while it grows. ``folder`` holds its files on this machine."""

    output: str
    folder: Path

    @classmethod
    def of(cls, output: str, work: Path) -> "LiveFolder":
        """Return the folder of an output: the output itself if it is local, otherwise a local copy in ``work``."""
        return cls(output, local_path(output) if is_local(output) else work / "package")

    def check(self, source: str, tracks: Collection[str]) -> None:
        """Check that the output holds only an earlier run's files: those of these tracks, and their manifests.

        Raises OutputExists: there are other files, or without ``tracks`` any file; OutputUnwritable; StorageFailed.
        """
        if is_local(self.output):
            check_folder_of(self.folder)
            found = _files_under(self.folder)
        else:
            check_output(source, f"{self.output.rstrip('/')}/{MASTER}", overwrite=True)
            found = sorted(files_in(self.output))
        if others := [each for each in found if not _is_of(each, tracks)]:
            message = f"{self.output} holds {others[0]}, which does not belong to a ladder that can continue"
            raise OutputExists(message, "Choose another name: --follow adds to its own folder only.")

    def begin(self) -> None:
        """Create the folder. Raises StorageFailed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self.folder) from error

    def leave(self) -> None:
        """Remove the folder if it is empty. Never raises."""
        with suppress(OSError):
            self.folder.rmdir()

    def segments(self, names: Iterable[str]) -> None:
        """Publish segments and headers, which are in ``folder``. Raises StorageFailed."""
        if not is_local(self.output):
            for name in names:
                publish(self.folder / name, f"{self.output.rstrip('/')}/{name}", overwrite=True)

    def texts(self, texts: dict[str, str]) -> None:
        """Publish manifests, whose texts are given by name, one after another in this order. Raises StorageFailed."""
        for name, text in texts.items():
            path = self.folder / name
            aside = path.with_name(f".{name}.new")
            try:
                aside.write_text(text, encoding="utf-8")
                aside.replace(path)
            except OSError as error:
                raise storage_error(error, path) from error
        self.segments(texts)


def _files_under(folder: Path) -> list[str]:
    """Return the names of all files in a folder. Raises OutputExists: it is a file; OutputUnwritable."""
    if folder.exists() and not folder.is_dir():
        raise OutputExists(f"{folder} is a file", "Choose another name: a ladder is a folder.")
    try:
        return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if not each.is_dir())
    except OSError as error:
        raise OutputUnwritable(f"{folder} cannot be read: {error.strerror}", "Change its permissions.") from error


def _is_of(name: str, tracks: Collection[str]) -> bool:
    """Return whether a file belongs to a ladder of these tracks; without tracks, none does."""
    top, _, rest = name.partition("/")
    if rest:
        return top in tracks
    own = {MASTER, MANIFEST, INDEX, *(f"{each}{end}.m3u8" for each in tracks for end in ("", "-keyframes"))}
    return bool(tracks) and top.removeprefix(".").removesuffix(".new") in own
