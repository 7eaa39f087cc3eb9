"""Decides whether HDR is tone mapped to SDR, and with which peak. Pure."""

from fractions import Fraction
from typing import Final

from ...actors.encode.pix_fmt import is_rgb
from ...actors.media.values import UNSPECIFIED, VideoFormat
from ...actors.segment.tone import HLG_PEAK_CD, TRANSFERS, WHITE_CD, Operator, ToneMap, Transfer
from ...errors import Unsupported
from ..request.spec import TranscodeSpec

_BT2020: Final = frozenset({UNSPECIFIED, 9})  #: Primaries and matrices taken for BT.2020: nearly all HDR has them
_USUAL_PEAK_CD, _HIGHEST_PEAK_CD = 1000, 10_000


def settle_tone(source: VideoFormat, spec: TranscodeSpec) -> ToneMap | None:
    """Return the tone mapping; None for SDR or without a request. Raises Unsupported: HDR that is not BT.2020."""
    colour = source.colour
    if spec.tonemap is None or colour.transfer not in TRANSFERS:
        return None
    tone = tone_of(source, Operator(spec.tonemap))
    if tone is None:
        colours = f"{source.pix_fmt} with primaries {colour.primaries} and matrix {colour.matrix} of H.273"
        raise Unsupported(f"--tonemap supports BT.2020 YUV, but this is {colours}", "Leave out --tonemap.")
    return tone


def tone_of(source: VideoFormat, operator: Operator) -> ToneMap | None:
    """Return the tone mapping of HDR pictures; None if the pictures are not HDR, or not BT.2020 YUV."""
    colour = source.colour
    transfer = TRANSFERS.get(colour.transfer)
    is_bt2020 = colour.primaries in _BT2020 and colour.matrix in _BT2020 and not is_rgb(source.pix_fmt)
    if transfer is None or not is_bt2020:
        return None
    peak_cd = Fraction(HLG_PEAK_CD) if transfer is Transfer.HLG else _peak_cd(source)
    return ToneMap(operator, transfer, peak_cd)


def _peak_cd(source: VideoFormat) -> Fraction:
    """Return the stated peak of the content (MaxCLL), otherwise of the mastering display, otherwise the usual peak."""
    light, mastering = source.hdr.light, source.hdr.mastering
    stated = (light.max_cll if light else 0) or (mastering.max_luminance if mastering else 0) or _USUAL_PEAK_CD
    return min(max(Fraction(stated), Fraction(WHITE_CD)), Fraction(_HIGHEST_PEAK_CD))
