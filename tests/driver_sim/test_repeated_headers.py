"""``repeatspspps`` of PyNvVideoCodec's guide (2.5) is set if the output's container repeats parameter sets."""

import json
import re
from pathlib import Path

import av

from .simulated_driver import needs
from .test_nvenc_inputs import run, told

pytestmark = needs("PyNvVideoCodec")

REPEATS = """
shades = [np.full((HEIGHT * 3 // 2, WIDTH), 16 + 9 * n, np.uint8) for n in range(12)]
for name, codec in json.loads(sys.argv[2]):
    options = dict(fps=25, codec=codec, encoder="nvenc", preset=1, encoder_options=(("gop", "4"), ("bf", "0")))
    report = asyncio.run(codecfleet.encode(shades, f"{folder}/{name}", **options))
    print(json.dumps([report.encoder]))
"""
HEADERS = {"h264": {7, 8}, "hevc": {32, 33, 34}}
"""Types of the NAL units that are parameter sets."""


def test_containers_of_bare_bitstreams_repeat_parameter_sets(tmp_path: Path) -> None:
    """Each of three IDR pictures has parameter sets in .ts, .h264 and .hevc, and none has them in .mkv."""
    asked = [(f"{codec}{suffix}", codec) for codec in HEADERS for suffix in (".ts", f".{codec}", ".mkv")]
    found = told(run(REPEATS, tmp_path, json.dumps(asked)))
    assert found == [[f"{codec}_nvenc"] for _, codec in asked]
    for name, codec in asked:
        wanted = set() if name.endswith(".mkv") else HEADERS[codec]
        assert [units & HEADERS[codec] for units in keyframes(tmp_path / name, codec)] == [wanted] * 3, name


def keyframes(path: Path, codec: str) -> list[set[int]]:
    """Return the types of the NAL units of each keyframe, found by start codes."""
    with av.open(str(path)) as container:
        packets = [bytes(each) for each in container.demux(container.streams.video[0]) if each.is_keyframe]
    first = [[match[1][0] for match in re.finditer(rb"\x00\x00\x01(.)", packet, re.DOTALL)] for packet in packets]
    return [{byte & 31 if codec == "h264" else byte >> 1 & 63 for byte in bytes_} for bytes_ in first]
