"""Set an encoder's own options, and see them in the plan and in the report.

python examples/encoder_options.py film.mkv film.mp4
"""

import argparse
from typing import Any

from codecfleet import Codec, TranscodeSpec, plan_transcode, transcode


def main() -> None:
    """Transcode to 10-bit HEVC tuned for grain, with the bitrate limited over a buffer of two seconds."""
    parser = argparse.ArgumentParser(description="Set an encoder's own options.")
    parser.add_argument("source")
    parser.add_argument("output")
    arguments = parser.parse_args()
    options: dict[str, Any] = {
        "codec": Codec.HEVC,
        "pix_fmt": "yuv420p10le",
        "bitrate_bps": 1_500_000,
        "maxrate_bps": 2_000_000,
        "bufsize_bits": 4_000_000,
        "preset": 2,
        "encoder_options": (("tune", "grain"), ("x265-params", "aq-mode=3:psy-rd=2.5")),
        "overwrite": True,
    }
    spec = TranscodeSpec.model_validate({"source": arguments.source, "output": arguments.output, **options})
    print(*plan_transcode(spec).lines(), sep="\n")

    report = transcode(arguments.source, arguments.output, **options)
    print(f"encoded with {report.encoder_kind}")


if __name__ == "__main__":
    main()
