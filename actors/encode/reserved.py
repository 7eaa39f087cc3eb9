"""Encoder options that a user may not set, because they would break a promise that every output keeps.

The promises: one packet per picture, closed segments, no opened files, and the same bytes and colours everywhere.
"""

from collections.abc import Mapping
from typing import Final

from ...errors import Unsupported

_SEGMENTS = "every segment begins with an IDR picture and is closed"
_THREADS = "codecfleet chooses the threads, so that the output has the same bytes everywhere"
_FILES = "an encoder must not open files"
_PICTURE = "size, rate and colour follow the picture, which --scale and --pix-fmt change"
_COUNT = "every picture must give exactly one packet"
_RATE = "use --quality, --bitrate, --maxrate and --bufsize"
_PACKETS = "codecfleet chooses the layout of packets and parameter sets"
_GRID = "--keyframe-interval places the keyframes"


def _by_name(reasons: Mapping[str, str]) -> Mapping[str, str]:
    return {name: reason for reason, names in reasons.items() for name in names.split()}


_OPTIONS: Final = _by_name(
    {
        _SEGMENTS: "forced-idr intra-refresh flags flags2",
        _THREADS: "threads thread_type row-mt slices",
        _FILES: "stats passlogfile fastfirstpass x265-stats cplxblur",
        _PICTURE: (
            "color_range color_primaries color_trc colorspace chroma_sample_location field_order time_base video_size "
            "pixel_format aspect alpha_mode"
        ),
        _COUNT: "drop-threshold ts-parameters skip_frame frame_drop_threshold",
        _RATE: "b maxrate minrate bufsize crf rc_init_occupancy rc_max_rate",
        _PACKETS: "err_detect dolbyvision export_side_data copy_opaque x264opts",
    }
)
_PARAMETERS: Final = {
    library: _by_name(reasons)
    for library, reasons in {
        "libx264": {
            _SEGMENTS: "open-gop intra-refresh",
            _THREADS: (
                "threads lookahead-threads sliced-threads sync-lookahead cpu-independent deterministic "
                "non-deterministic opencl opencl-clbin opencl-device"
            ),
            _FILES: "stats pass qpfile dump-yuv cqmfile log-file",
            _PICTURE: (
                "fps sar input-res input-csp output-csp force-cfr vfr-input timebase frames range fullrange colorprim "
                "transfer colormatrix chromaloc pulldown crop-rect interlaced tff bff fake-interlaced "
                "mastering-display cll"
            ),
            _RATE: "crf bitrate qp qp-constant vbv-maxrate vbv-bufsize vbv-init filler",
            _PACKETS: "annexb repeat-headers stitchable",
        },
        "libx265": {
            _SEGMENTS: "open-gop intra-refresh no-open-gop",
            _THREADS: "pools numa-pools frame-threads lookahead-threads const-vbv",
            _FILES: (
                "stats pass multi-pass-opt-rps qpfile csv csv-log-level recon recon-depth analysis-save analysis-load "
                "analysis-reuse-file scaling-list lambda-file zonefile dhdr10-info dolby-vision-rpu "
                "dolby-vision-profile nalu-file log-file film-grain aom-film-grain multiview-config svt"
            ),
            _PICTURE: (
                "fps sar input-res input-csp input-depth output-depth interlace field frames range colorprim transfer "
                "colormatrix chromaloc overscan display-window master-display max-cll hdr10 video-signal-type-preset "
                "seek total-frames alpha"
            ),
            _RATE: "crf bitrate qp vbv-maxrate vbv-bufsize vbv-init vbv-end lossless",
            _PACKETS: "annexb repeat-headers idr-recovery-sei single-sei num-layers",
        },
        "libsvtav1": {
            _SEGMENTS: "irefresh-type enable-force-key-frames sframe-dist sframe-mode",
            _THREADS: "lp pin ss logical-processors target-socket pin-lp",
            _FILES: "pass passes stats qp-file use-q-file recon fgs-table roi-map-file errlog",
            _PICTURE: (
                "width height fps fps-num fps-denom forced-max-frame-width input-depth color-format "
                "forced-max-frame-height color-primaries transfer-characteristics matrix-coefficients color-range "
                "chroma-sample-position mastering-display content-light frames skip resize-mode resize-denom "
                "resize-kf-denom resize-frame-events frame-resz-events resize-frame-kf-denoms resize-frame-denoms "
                "superres-mode profile"
            ),
            _RATE: "rc crf qp tbr mbr buf-sz buf-initial-sz buf-optimal-sz",
            _PACKETS: "avif pred-struct rtc",
        },
    }.items()
}

_GRID_OPTIONS: Final = frozenset({"g", "keyint_min", "sc_threshold"})
_GRID_PARAMETERS: Final = {
    "libx264": frozenset({"keyint", "keyint-max", "min-keyint", "keyint-min", "scenecut", "no-scenecut"}),
    "libx265": frozenset(
        {"keyint", "min-keyint", "scenecut", "no-scenecut", "hist-scenecut", "fades", "gop-lookahead", "radl"}
    ),
    "libsvtav1": frozenset({"keyint", "intra-period", "scd"}),
}
"""Options that move keyframes, and may not be combined with a keyframe interval."""
_LENIENT: Final = frozenset({"libx264", "libx265"})


def check_not_reserved(implementation: str, name: str, *, parameter: bool, on_grid: bool) -> None:
    """Raise ``Unsupported`` if users must not set an option, or a parameter in ``x264-params`` or the like.

    ``on_grid``: the request has a keyframe interval, so names that move keyframes are refused, too.
    """
    reasons = _PARAMETERS.get(implementation, {}) if parameter else _OPTIONS
    on_the_grid = _GRID_PARAMETERS.get(implementation, frozenset()) if parameter else _GRID_OPTIONS
    names = spellings(implementation, name) if parameter else {name}
    reason = next((reasons[each] for each in names if each in reasons), None)
    if on_grid and names & on_the_grid:
        reason = _GRID
    if reason is not None:
        raise Unsupported(f"the encoder option {name} cannot be set", f"Leave the option out: {reason}.")


def spellings(implementation: str, name: str) -> set[str]:
    """Return the names under which a library knows a parameter: x264 and x265 accept ``_``, ``no-`` and ``--``."""
    if implementation not in _LENIENT:
        return {name}
    name = name.lower().lstrip("-").replace("_", "-")
    return {name, name.removeprefix("no").lstrip("-")}
