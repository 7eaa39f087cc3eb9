"""A parameter that a user may not set is refused in every spelling that its library accepts."""

import pytest

from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.settle.software import software_request
from codecfleet.errors import Unsupported


@pytest.mark.parametrize(
    ("codec", "key", "parameter"),
    [
        (Codec.H264, "x264-params", "dump_yuv=out.yuv"),
        (Codec.H264, "x264-params", "vbv_maxrate=60:vbv_bufsize=60"),
        (Codec.H264, "x264-params", "sliced_threads=1"),
        (Codec.H264, "x264-params", "no-deterministic=1"),
        (Codec.H264, "x264-params", "nodeterministic=1"),
        (Codec.H264, "x264-params", "no_cpu_independent=1"),
        (Codec.HEVC, "x265-params", "--csv=out.csv"),
        (Codec.HEVC, "x265-params", "analysis_save=out.dat"),
        (Codec.HEVC, "x265-params", "frame_threads=4"),
        (Codec.HEVC, "x265-params", "no-const-vbv=1"),
    ],
)
def test_another_spelling_is_refused_too(codec: Codec, key: str, parameter: str) -> None:
    """No spelling of a parameter opens a file, or changes the threads or the rate."""
    with pytest.raises(Unsupported, match="cannot be set"):
        software_request(codec, options=((key, parameter),))


@pytest.mark.parametrize("parameter", ["aq_mode=1", "no-mbtree=1", "no_psy=1", "nr=100"])
def test_what_may_be_set_is_taken_in_any_spelling(parameter: str) -> None:
    """Users may set other parameters, in any spelling."""
    request = software_request(Codec.H264, options=(("x264-params", parameter),))
    assert request.options == (("x264-params", parameter),)
