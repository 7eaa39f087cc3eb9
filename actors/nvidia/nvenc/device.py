"""Queries the capabilities of one device's NVENC once, and counts the device's encoders."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ....errors import CodecfleetError, DeviceLost, EngineUnfit, SessionLimit, Unsupported
from ...encode.nvenc_settings import NvencSettings, Qp
from ...encode.settings import Codec
from ...settle.nvenc import SOFTWARE_STEP, EncoderCapabilities
from ...surfaces.formats import SurfaceFormat
from ...watchdog import process_watch
from ..cuda.context import Cuda
from ..cuda.memory import MemoryBudget
from .errors import EncoderEvidence, nvenc_error
from .inputs import SURFACE_NAMES

_SESSION_BYTES: Final = 96 << 20
"""An estimate of a session's memory in addition to its surfaces; neither documented nor measured."""
_SPARE_SURFACES: Final = 8
_NVENC: Final = "NVENC"
_NUMBERS: Final = (
    *("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "cq", "gop", "idrperiod", "bf", "numrefl0", "numrefl1"),
    *("lookahead", "aq", "tier"),
)


@dataclass(frozen=True, slots=True)
class EncoderCounts:
    """A process's encoders: open now, made so far, refused by the session limit, and open at the last refusal."""

    open: int = 0
    made: int = 0
    refusals: int = 0
    refused_at: int = 0


class NvencDevice:
    """One device's NVENC, through PyNvVideoCodec. Safe from any thread.

    Capabilities are queried once per codec: each query makes a CUDA context.

    ``free_bytes`` returns how much device memory is free, None if unknown. If it fails while an encoder's error is
    examined, the error of ``free_bytes`` is raised, since the package reports a lost device only as a failed picture.
    If ``cuda`` is None, each encoder makes its own context. Encoders take memory from ``budget``; None means no limit.
    """

    def __init__(
        self,
        package: Any,
        *,
        free_bytes: Callable[[], int | None] = lambda: None,
        cuda: Cuda | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.package = package
        self._budget = budget or MemoryBudget(None)
        self.watch = process_watch()
        self._free_bytes = free_bytes
        self._handles = {"gpu_id": 0} if cuda is None else {"gpu_id": cuda.ordinal, "cudacontext": cuda.context}
        self.entered: AbstractContextManager[None] = nullcontext() if cuda is None else cuda.entered
        self._lock = threading.RLock()  # reentrant: an encoder may be collected while its thread holds the lock
        self._capabilities: dict[Codec, EncoderCapabilities] = {}
        self.counts = EncoderCounts()
        self._abandoned: list[Any] = []

    def capabilities(self, codec: Codec) -> EncoderCapabilities:
        """Return the device's capabilities for a codec; the driver is asked only the first time.

        ``EngineUnfit`` if there is no NVENC, or if it does not support this codec; ``DeviceError`` if the driver
        failed.
        """
        with self._lock:
            if codec not in self._capabilities:
                self._capabilities[codec] = self._asked(codec)
            return self._capabilities[codec]

    def open(
        self,
        settings: NvencSettings,
        surface: SurfaceFormat,
        width: int,
        height: int,
        *,
        from_host: bool,
        stream: int | None = None,
    ) -> "NvencEncoder":
        """Check that the settings fit the device, and make an encoder. Raises the errors of ``NvencSession``."""
        name = SURFACE_NAMES[surface.layout]
        if not surface.holds(width, height):
            message = f"NVENC takes no {name} surface of {width}x{height}"
            raise Unsupported(message, "Formats with subsampled chroma need even sides; scale with --scale.")
        window = (settings.bf or 0) + (settings.lookahead or 0) + _SPARE_SURFACES
        needed_bytes = _SESSION_BYTES + window * surface.size_bytes(width, height)
        self.capabilities(settings.codec).check(settings, surface, width, height)
        arguments = create_encoder_arguments(settings) | self._handles
        if stream is not None:
            arguments["cudastream"] = stream

        def made() -> Any:
            try:
                with self.entered, self.watch.opening(_NVENC, "CreateEncoder"):
                    return self.package.CreateEncoder(width, height, name, from_host, **arguments)
            except Exception as error:  # the package documents no errors
                found = self.mapped(error, needed_bytes, opening=True)
                if isinstance(found, SessionLimit):
                    with self._lock:
                        counts = self.counts
                        self.counts = replace(counts, refusals=counts.refusals + 1, refused_at=counts.open)
                raise found from error

        native = self._budget.spend(needed_bytes, made)
        with self._lock:
            self.counts = replace(self.counts, open=self.counts.open + 1, made=self.counts.made + 1)
        return NvencEncoder(self, native, needed_bytes)

    def mapped(self, error: Exception, needed_bytes: int, *, opening: bool) -> CodecfleetError:
        """Return codecfleet's error for an error of the package, or the error of ``free_bytes`` if that fails too."""
        if isinstance(error, CodecfleetError):
            return error
        try:
            free_bytes = self._free_bytes()
        except CodecfleetError as broken:
            return broken
        own = self.counts.open
        return nvenc_error(error, EncoderEvidence(opening, own, needed_bytes, free_bytes))

    def closed(self, needed_bytes: int) -> None:
        """Release an encoder's memory and count it as closed."""
        self._budget.give_back(needed_bytes)
        with self._lock:
            self.counts = replace(self.counts, open=self.counts.open - 1)

    def abandon(self, native: Any) -> None:
        """Keep an encoder of a lost device until the process is replaced: destroying it would end the process now."""
        with self._lock:
            self._abandoned.append(native)

    def _asked(self, codec: Codec) -> EncoderCapabilities:
        try:
            with self.entered, self.watch.opening(_NVENC, "GetEncoderCaps"):
                answer = dict(self.package.GetEncoderCaps(gpuid=self._handles["gpu_id"], codec=codec.value))
        except Exception as error:  # the package documents no errors
            raise self.mapped(error, _SESSION_BYTES, opening=True) from error
        if not answer or not answer.get("width_max", 1):
            raise EngineUnfit(f"this GPU has no {codec} encoder", SOFTWARE_STEP)
        return EncoderCapabilities(codec, answer)


class NvencEncoder:
    """One open encoder of the package; the package's errors become codecfleet's. Not thread-safe."""

    def __init__(self, device: NvencDevice, native: Any, needed_bytes: int) -> None:
        self._device = device
        self._native = native
        self._needed_bytes = needed_bytes
        self._is_lost = False

    def call(self, name: str, *arguments: object) -> Any:
        """Call a method of the package's encoder; ``DeviceError`` if it fails."""
        try:
            with self._device.entered, self._device.watch.calling(_NVENC, name):
                return getattr(self._native, name)(*arguments)
        except Exception as error:  # the package documents no errors
            found = self._device.mapped(error, self._needed_bytes, opening=False)
            self._is_lost = isinstance(found, DeviceLost)
            raise found from error

    def close(self) -> None:
        """Drop the encoder; the package ends the session when the object is deleted."""
        if self._native is not None:
            if self._is_lost:
                self._device.abandon(self._native)
            with self._device.entered, self._device.watch.calling(_NVENC, "the session's end"):
                self._native = None
            self._device.closed(self._needed_bytes)


def create_encoder_arguments(settings: NvencSettings) -> dict[str, Any]:
    """Return ``CreateEncoder``'s arguments without the defaults, because some keys act with any value."""
    arguments: dict[str, Any] = {
        "codec": settings.codec.value,
        "preset": settings.preset.value,
        "tuning_info": settings.tuning_info.value,
        "rc": settings.rc.value,
        "fps": f"{settings.fps.numerator}/{settings.fps.denominator}",
    }
    for name in _NUMBERS:
        if (value := getattr(settings, name)) is not None:
            arguments[name] = int(value)
    for name in ("constqp", "initqp", "qmax"):
        quantizers: Qp | None = getattr(settings, name)
        if quantizers is not None:
            arguments[name] = list(quantizers.values)
    arguments |= {name: 1 for name in ("temporalaq", "ldkfs") if getattr(settings, name)}
    if settings.multipass is not None:
        arguments["multipass"] = settings.multipass.value
    if settings.timinginfo is not None:
        arguments["timinginfo"] = asdict(settings.timinginfo)
    if settings.level is not None:
        arguments["level"] = settings.level
    if settings.repeatspspps is not None:
        # The package sets repeatSPSPPS for any value of that key; only another key clears it.
        arguments["repeatspspps" if settings.repeatspspps else "global_header"] = 1
    return arguments
