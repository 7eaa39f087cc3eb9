"""All manifests of a package. They are written last, so that no player finds one before the tracks."""

from ..names import MANIFEST, MASTER, keyframes_file, playlist_file
from ..values import Package, PackageStage, PlayedKind
from .dash import manifest
from .hls import keyframe_playlist, master_playlist, media_playlist


def manifests(package: Package) -> dict[str, str]:
    """Return the manifests by file name, each after those it refers to. A growing package has no DASH manifest."""
    playlists = {playlist_file(track.given): media_playlist(package, track) for track in package.tracks}
    keyframes = {keyframes_file(each.given): keyframe_playlist(package, each) for each in package.of(PlayedKind.VIDEO)}
    finished = {} if package.stage is PackageStage.GROWING else {MANIFEST: manifest(package)}
    return playlists | keyframes | {MASTER: master_playlist(package)} | finished
