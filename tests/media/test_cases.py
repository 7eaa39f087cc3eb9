from itertools import product

from codecfleet.actors.encode.settings import Codec
from codecfleet.jobs.carry.containers import container_for

from .cases import FRAGMENTED, REFUSALS, SHORT, assigned

NAMES = [f"file{number:02d}.mp4" for number in range(63)]


def test_every_codec_meets_every_container_that_holds_it() -> None:
    """Over all files, no pair of codec and container is left out."""
    met = {(case.codec, case.container) for case in assigned(NAMES)}
    extensions = ("mp4", "mov", "mkv", "webm", "ts", "h264", "hevc", "ivf", "obu")
    held = {(c, name) for c, name in product(Codec, extensions) if c in container_for(f"x.{name}").video_codecs}
    assert met == held | {(codec, FRAGMENTED) for codec in Codec}


def test_every_file_gets_two_codecs_and_two_containers() -> None:
    """The two outputs of a file differ in both, and one of them is cut every second."""
    for name in NAMES:
        cases = [case for case in assigned(NAMES) if case.source == name]
        assert len({case.codec for case in cases}) == len({case.container for case in cases}) == 2
        assert {case.segment_s for case in cases} == {None, 1}


def test_outputs_have_names_of_their_own() -> None:
    """No case overwrites another's output, in either form."""
    for cases in (assigned(NAMES), list(SHORT.values())):
        assert len({case.output_name for case in cases}) == len(cases)


def test_a_forced_case_expects_no_refusal() -> None:
    """What is refused by default must come out when it is forced."""
    forced = [case for case in assigned(NAMES) if case.force]
    assert forced
    assert all(case.source in REFUSALS and case.refusal is None for case in forced)
