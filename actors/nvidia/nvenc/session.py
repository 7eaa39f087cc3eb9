"""An encoder session on NVENC: exactly one packet for each picture, from the host or the device.

PyNvVideoCodec numbers pictures itself and returns packets late, so the session keeps the time for each number. Source:
PyNvVideoCodec programming guide, section 2.3; "Reconfigure" there, which does not list ``cq`` yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final

from av.video.frame import VideoFrame

from ....errors import EncoderFailed, EngineFailed, Unsupported, UsageError
from ...bitstream.access_points import RandomAccess, random_access_kind
from ...closing import undone_by
from ...encode.nvenc_settings import Multipass, NvencSettings, RateMode
from ...encode.session import RETRY_ADVICE, EncodedPacket, EncoderSession, SessionState
from ...encode.settings import EncoderSettings, RateChange
from ...encode.software import reorder_depth
from ...media.values import SeiMessage
from ...surfaces.device_frame import TimedPicture
from ...surfaces.formats import surface_format
from .bitstream import BitstreamWriter
from .device import NvencDevice
from .inputs import device_input, host_input

_FORCE_IDR: Final = 2  # NV_ENC_PIC_FLAG_FORCEIDR
_PICTURE_IDR: Final = 3  # NV_ENC_PIC_TYPE_IDR
_MOST_B_FRAMES: Final = 7
"""The limit of B pictures in a row if neither settings nor parameter sets state one: more than any preset uses."""
_COUNTS: Final = {
    "bitrate": "averageBitrate",
    "maxbitrate": "maxBitRate",
    "vbvbufsize": "vbvBufferSize",
    "vbvinit": "vbvInitialDelay",
    "cq": "targetQuality",
}
"""The fields of the package's ``structEncodeReconfigureParams``, keyed by codecfleet's names."""
_MULTIPASS: Final = {None: "DISABLED", Multipass.QUARTER: "QUARTER_RESOLUTION", Multipass.FULL: "FULL_RESOLUTION"}


class NvencSession(EncoderSession[VideoFrame | TimedPicture]):
    """One encoder on NVENC, for one segment.

    Software frames carry their time and must have the settings' size, pixel format and time base; other pictures come
    as ``TimedPicture``. No picture is converted. Without ``from_host``, pictures are in device memory; each must be
    complete, or written in the CUDA stream with the handle ``stream``, because the package waits for no other stream
    (programming guide, section 2.3: ``cudastream``).

    Raises:
        Unsupported: no NVENC has such a setting, which the message names.
        EngineUnfit: this device's NVENC cannot encode like this, or the device has no NVENC.
        SessionLimit, DeviceMemory: there is no room for a further encoder now.
        DeviceError: the device failed.
    """

    def __init__(
        self, device: NvencDevice, settings: EncoderSettings, *, from_host: bool = True, stream: int | None = None
    ) -> None:
        picture = settings.format
        self._settings = settings
        self.name = settings.implementation
        surface = surface_format(picture.pix_fmt)
        if settings.nvenc is None or surface is None:
            raise UsageError(f"{settings.implementation} was not settled for NVENC", "Settle the encoder again.")
        self._nvenc = settings.nvenc
        self._surface = surface
        self._from_host = from_host
        self._package = device.package
        self._encoder = device.open(
            self._nvenc, surface, picture.width, picture.height, from_host=from_host, stream=stream
        )
        with undone_by(self._encoder.close):
            self._writer = BitstreamWriter(settings.codec, picture, bytes(self._encoder.call("GetSequenceParams")))
            self.extradata = self._writer.extradata
            unstated = _MOST_B_FRAMES if self._nvenc.bf is None else self._nvenc.bf
            self.reorder_frames = reorder_depth(settings, self.extradata, unstated)
            self._rates = _initial_rates(self._nvenc, self._encoder.call("GetEncodeReconfigureParams"))
        # The pts and samples of each picture, by its number; the package may copy the samples at any time.
        self._waiting: dict[int, tuple[int, object]] = {}
        self._taken = 0

    def encode(
        self, picture: VideoFrame | TimedPicture, *, keyframe: bool = False, sei_messages: Sequence[SeiMessage] = ()
    ) -> list[EncodedPacket]:
        """Encode one picture, and return the packets that are ready, usually of earlier pictures."""
        self._require_open()
        pixels, pts_ticks = self._timed(picture)
        accept = host_input if self._from_host else device_input
        surface = accept(pixels, self._surface, self._settings.format.width, self._settings.format.height)
        number = self._taken
        self._waiting[number] = (pts_ticks, surface)
        self._taken, self._last_pts_ticks = number + 1, pts_ticks
        flags = _FORCE_IDR if keyframe or not number else 0
        found = self._encoder.call("Encode", surface, *self._picture_parameters(number, flags, sei_messages))
        return [self._packet(entry) for entry in found]

    def finish(self) -> list[EncodedPacket]:
        """Return the remaining packets; ``DeviceError`` if the device failed or pictures are missing."""
        self._require_open()
        packets = [self._packet(entry) for entry in self._encoder.call("EndEncode")] if self._taken else []
        self._end([pts_ticks for pts_ticks, _ in self._waiting.values()], EngineFailed)
        return packets

    def close(self) -> None:
        """End the driver's session now."""
        self._state = SessionState.CLOSED
        self._encoder.close()
        self._waiting.clear()

    def reconfigure(self, change: RateChange) -> None:
        """Change the rate control, from the next picture on."""
        self._require_open()
        try:
            wanted = _changed_rates(self._rates, change)
        except (TypeError, ValueError) as error:
            message = f"{self.name} cannot change its rates: {error}"
            raise Unsupported(message, "docs/nvenc.md lists the settings of RateChange.") from None
        _check_rates(self._nvenc, wanted)
        native = self._encoder.call("GetEncodeReconfigureParams")
        _put_rates(wanted, native)
        if not self._encoder.call("Reconfigure", native):
            raise EngineFailed(f"{self.name} did not take the new rates", "Open a new session with the new rates.")
        self._rates = wanted
        self._writer.parameters_may_change()

    def _timed(self, picture: VideoFrame | TimedPicture) -> tuple[object, int]:
        pts_ticks = picture.pts_ticks if isinstance(picture, TimedPicture) else picture.pts
        wanted = self._settings.time_base
        if isinstance(picture, VideoFrame) and picture.time_base != wanted:
            raise EncoderFailed(f"{self.name} got a picture in ticks of {picture.time_base}, not of {wanted}")
        return (picture.pixels if isinstance(picture, TimedPicture) else picture), self._later_pts(pts_ticks)

    def _picture_parameters(self, number: int, flags: int, sei_messages: Sequence[SeiMessage]) -> tuple[Any, ...]:
        if sei_messages:  # the package takes either messages or parameters; with messages it counts pictures itself
            return flags, [({"sei_type": message.kind}, list(message.payload)) for message in sei_messages]
        parameters = self._package.NV_ENC_PIC_PARAMS()
        parameters.inputTimeStamp, parameters.encodePicFlags = number, flags
        return (parameters,)

    def _packet(self, entry: Mapping[str, Any]) -> EncodedPacket:
        number, data = int(entry["timestamp"]), bytes(entry["data"])
        if number not in self._waiting:
            raise EngineFailed(f"{self.name} returned an unexpected packet, of picture {number}", RETRY_ADVICE)
        is_keyframe = int(entry["picture_type"]) == _PICTURE_IDR
        if is_keyframe and random_access_kind(self._settings.codec, data) is RandomAccess.NONE:
            raise EngineFailed(f"{self.name} wrongly marked a packet as a keyframe", RETRY_ADVICE)
        # Numbers are in presentation order. A picture may be coded any number of pictures early, but only a few
        # pictures late.
        if self._packets_out - number > self.reorder_frames:
            message = f"{self.name} reordered picture {number} by more than {self.reorder_frames}"
            raise EngineFailed(message, RETRY_ADVICE)
        self._count_packet(EngineFailed, is_keyframe=is_keyframe)
        payload = self._writer.packet(data, is_keyframe=is_keyframe)
        return EncodedPacket(self._waiting.pop(number)[0], is_keyframe, payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """The rates that may change, in bit/s, and buffers in bits; 0 lets the driver choose."""

    rc: RateMode
    multipass: Multipass | None
    bitrate: int
    maxbitrate: int
    vbvbufsize: int
    vbvinit: int
    fps: Fraction
    cq: int


def _initial_rates(settings: NvencSettings, native: Any) -> _Rates:
    """Return an encoder's rates: ``rc``, ``multipass`` and ``cq`` of ``settings``, the others from ``native``."""
    found = {name: int(getattr(native, field)) for name, field in _COUNTS.items()} | {"cq": settings.cq or 0}
    fps = Fraction(int(native.frameRateNum), int(native.frameRateDen))
    return _Rates(rc=settings.rc, multipass=settings.multipass, fps=fps, **found)


def _changed_rates(rates: _Rates, change: RateChange) -> _Rates:
    """Return the rates after a change; ``ValueError`` or ``TypeError`` if a value is unknown or not a number."""
    given = {field.name: value for field in fields(change) if (value := getattr(change, field.name)) is not None}
    if "rc" in given:
        given["rc"] = RateMode(given["rc"])
    if "multipass" in given:
        given["multipass"] = None if given["multipass"] == "off" else Multipass(given["multipass"])
    if "fps" in given:
        given["fps"] = _rate(given["fps"])
    for name in _COUNTS.keys() & given.keys():
        if not isinstance(given[name], int) or isinstance(given[name], bool):
            raise TypeError(f"{name} must be a whole number, not {given[name]!r}")
    wanted = replace(rates, **given)
    # A constant bitrate has no separate peak, but the driver's default rate control has one.
    return replace(wanted, maxbitrate=wanted.bitrate) if wanted.rc is RateMode.CBR and not change.maxbitrate else wanted


def _rate(fps: Any) -> Fraction:
    try:
        return Fraction(fps)
    except (OverflowError, TypeError, ValueError, ZeroDivisionError):
        raise TypeError(f"fps must be a number of frames a second, not {fps!r}") from None


def _check_rates(settings: NvencSettings, wanted: _Rates) -> None:
    """Raise ``Unsupported`` if new rates break a rule of the settings."""
    replace(settings, **(asdict(wanted) | {name: getattr(wanted, name) or None for name in _COUNTS}))


def _put_rates(wanted: _Rates, native: Any) -> None:
    """Write rates into the package's ``structEncodeReconfigureParams``."""
    native.rateControlMode = getattr(type(native.rateControlMode), wanted.rc.name)
    native.multiPass = getattr(type(native.multiPass), _MULTIPASS[wanted.multipass])
    native.frameRateNum, native.frameRateDen = wanted.fps.numerator, wanted.fps.denominator
    for name, field in _COUNTS.items():
        setattr(native, field, getattr(wanted, name))
