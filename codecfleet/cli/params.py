"""The options of ``transcode`` and ``plan``, stated once: their names, help texts and meaning.

typer only splits the command line and writes the help; every value arrives here as text and is parsed by
``cli_options``, so that what users read about a wrong value is ours and stays one line.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import typer
from pydantic import ValidationError

from ..actors.encode.settings import Codec
from ..errors import UsageError
from ..jobs.request.spec import TranscodeSpec
from ..jobs.request.spec_file import load_spec
from .options import (
    parse_choice,
    parse_count,
    parse_counts,
    parse_pairs,
    parse_path,
    parse_rate,
    parse_size,
    parse_time,
)

__all__ = [
    "AudioTracks",
    "EndTime",
    "JsonFlag",
    "Source",
    "StartTime",
    "VideoTrack",
    "build_spec",
    "with_spec_options",
]

ReturnT = TypeVar("ReturnT")
Parser = Callable[[str, Any], Any]

_VIDEO: Final = "Video"
_PICTURE: Final = "Picture"
_TRACKS: Final = "What is carried"
_RUN: Final = "How the work is done"
_RULES: Final = "Output and rules"

_CODECS: Final = [codec.value for codec in Codec]
_DEINTERLACE: Final = ["off", "auto", "on"]
_AUDIO: Final = ["copy", "aac", "opus", "none"]
_SUBTITLES: Final = ["copy", "none"]
_DEVICES: Final = ["auto", "cpu", "gpu"]
_ENCODERS: Final = ["auto", "software", "nvenc"]

Source = Annotated[
    str,
    typer.Argument(metavar="INPUT", help="The file to read: a path, or an fsspec URL such as s3://bucket/film.mkv."),
]
Output = Annotated[
    str,
    typer.Argument(
        metavar="OUTPUT",
        help="The file to write: a path or an fsspec URL. Its extension names the container: "
        "mp4, mov, mkv, webm, ts, or a raw stream (h264, hevc, ivf, obu).",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document, for programs.")]


def _option(name: str, metavar: str, text: str, panel: str) -> Any:  # noqa: ANN401 - typer's own return type
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


def _flag(name: str, text: str, panel: str) -> Any:  # noqa: ANN401 - typer's own return type
    return typer.Option(name, metavar="", help=text, rich_help_panel=panel, show_default=False)


StartTime = Annotated[
    str | None,
    _option("--start", "TIME", "Begin here: seconds (90.5) or a clock time (1:30.5). Default: 0.", _PICTURE),
]
EndTime = Annotated[
    str | None, _option("--end", "TIME", "Stop before this time of the source. Default: its end.", _PICTURE)
]
_VIDEO_TRACK: Final = _option("--video-track", "N", "Which video track, counted from 0. Default: 0.", _TRACKS)
VideoTrack = Annotated[str, _VIDEO_TRACK]
AudioTracks = Annotated[
    list[str] | None,
    _option("--audio-track", "N", "Carry this audio track, counted from 0. Repeatable. Default: all.", _TRACKS),
]


def build_spec(
    source: Source,
    output: Output,
    *,
    codec: Annotated[
        str | None, _option("--codec", "|".join(_CODECS), "Video codec. Default: h264; vp9 into webm.", _VIDEO)
    ] = None,
    quality: Annotated[
        str | None,
        _option(
            "--quality",
            "N",
            "Constant quality on the encoder's own CRF scale, 0 to 63, lower is better. "
            "Default: the codec's, see docs/encoders.md.",
            _VIDEO,
        ),
    ] = None,
    bitrate: Annotated[
        str | None,
        _option("--bitrate", "RATE", "Average bitrate instead of a quality: 4M is 4,000,000 bit/s, 800k.", _VIDEO),
    ] = None,
    maxrate: Annotated[
        str | None,
        _option("--maxrate", "RATE", "Highest bitrate, in bit/s, over --bufsize. Default: no limit.", _VIDEO),
    ] = None,
    bufsize: Annotated[
        str | None,
        _option("--bufsize", "SIZE", "Buffer of the rate limit, in bits: 8M. Goes with --maxrate.", _VIDEO),
    ] = None,
    preset: Annotated[
        str | None, _option("--preset", "1..7", "1 is fastest, 7 slowest and smallest. Default: 4.", _VIDEO)
    ] = None,
    encoder_option: Annotated[
        list[str] | None,
        _option(
            "--encoder-option",
            "K=V",
            "One more option of the encoder: FFmpeg's name; with --encoder nvenc, NVENC's. Repeatable.",
            _VIDEO,
        ),
    ] = None,
    scale: Annotated[
        str | None,
        _option("--scale", "WxH|720p", "Picture size in pixels, or a height. Default: the source's.", _PICTURE),
    ] = None,
    pix_fmt: Annotated[
        str | None,
        _option("--pix-fmt", "NAME", "Pixel format, by FFmpeg's name: yuv420p10le. Default: the source's.", _PICTURE),
    ] = None,
    deinterlace: Annotated[
        str | None,
        _option(
            "--deinterlace",
            "|".join(_DEINTERLACE),
            "Make whole frames of fields: never, only where the source says so, or always. Default: off.",
            _PICTURE,
        ),
    ] = None,
    start: StartTime = None,
    end: EndTime = None,
    video_track: Annotated[str | None, _VIDEO_TRACK] = None,
    audio_track: AudioTracks = None,
    audio: Annotated[
        str | None,
        _option(
            "--audio",
            "|".join(_AUDIO),
            "Copy the audio bit for bit, encode it, or leave it out. Default: copy.",
            _TRACKS,
        ),
    ] = None,
    subtitles: Annotated[
        str | None,
        _option(
            "--subtitles",
            "|".join(_SUBTITLES),
            "Carry subtitles, converted where the container needs it, or not. Default: copy.",
            _TRACKS,
        ),
    ] = None,
    segment_seconds: Annotated[
        str | None,
        _option("--segment-seconds", "S", "Length to aim for when cutting, in seconds. Default: about 10.", _RUN),
    ] = None,
    workers: Annotated[
        str | None,
        _option(
            "--workers", "N", "Segments in flight at the same time. Default: what the machines have room for.", _RUN
        ),
    ] = None,
    priority: Annotated[
        str | None,
        _option(
            "--priority",
            "N",
            "0 to 100: on a shared cluster, jobs with a higher one get workers first. Default: 0.",
            _RUN,
        ),
    ] = None,
    weight: Annotated[
        str | None,
        _option("--weight", "N", "1 to 100: its part in a fair share among jobs of its priority. Default: 1.", _RUN),
    ] = None,
    device: Annotated[
        str | None,
        _option(
            "--device", "|".join(_DEVICES), "Use GPUs where they help, never, or at all costs. Default: auto.", _RUN
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        _option(
            "--encoder",
            "|".join(_ENCODERS),
            "Who encodes: whoever finishes first, software, or a GPU's NVENC. It decides the bytes. Default: auto.",
            _RUN,
        ),
    ] = None,
    spec_file: Annotated[
        str | None,
        _option(
            "--spec",
            "FILE.toml",
            "Take options from this file; those given here count instead of its own. Format: docs/config.md.",
            _RUN,
        ),
    ] = None,
    fragmented: Annotated[bool, _flag("--fragmented", "Write mp4 or mov in fragments.", _RULES)] = False,
    overwrite: Annotated[bool, _flag("--overwrite", "Replace OUTPUT if it exists. Default: refuse.", _RULES)] = False,
    strict: Annotated[
        bool, _flag("--strict", "Fail on damage and on anything that would be lost. Default: warn.", _RULES)
    ] = False,
    force: Annotated[
        bool,
        _flag("--force", "Encode Dolby Vision profile 5 too, whose colours come out wrong. Default: refuse.", _RULES),
    ] = False,
) -> TranscodeSpec:
    """Return the spec that the options ask for.

    Raises:
        UsageError: a value makes no sense, alone or beside another one.
    """
    flags = {"fragmented": fragmented, "overwrite": overwrite, "strict": strict, "force": force}
    given = {
        "codec": _maybe("--codec", codec, lambda name, text: Codec(parse_choice(name, text, _CODECS))),
        "quality": _maybe("--quality", quality, lambda name, text: parse_count(name, text, most=63)),
        "bitrate_bps": _maybe("--bitrate", bitrate, parse_rate),
        "maxrate_bps": _maybe("--maxrate", maxrate, parse_rate),
        "bufsize_bits": _maybe("--bufsize", bufsize, parse_rate),
        "preset": _maybe("--preset", preset, lambda name, text: parse_count(name, text, least=1, most=7)),
        "encoder_options": _maybe("--encoder-option", encoder_option, parse_pairs),
        "scale": _maybe("--scale", scale, parse_size),
        "pix_fmt": _maybe("--pix-fmt", pix_fmt, parse_path),
        "deinterlace": _maybe("--deinterlace", deinterlace, lambda name, text: parse_choice(name, text, _DEINTERLACE)),
        "start_s": _maybe("--start", start, parse_time),
        "end_s": _maybe("--end", end, lambda name, text: parse_time(name, text, positive=True)),
        "video_track": _maybe("--video-track", video_track, lambda name, text: parse_count(name, text, most=1_000)),
        "audio_tracks": _maybe("--audio-track", audio_track, parse_counts),
        "audio": _maybe("--audio", audio, lambda name, text: parse_choice(name, text, _AUDIO)),
        "subtitles": _maybe("--subtitles", subtitles, lambda name, text: parse_choice(name, text, _SUBTITLES)),
        "segment_s": _maybe("--segment-seconds", segment_seconds, lambda n, t: parse_time(n, t, positive=True)),
        "workers": _maybe("--workers", workers, lambda name, text: parse_count(name, text, least=1, most=10_000)),
        "priority": _maybe("--priority", priority, lambda name, text: parse_count(name, text, most=100)),
        "weight": _maybe("--weight", weight, lambda name, text: parse_count(name, text, least=1, most=100)),
        "device": _maybe("--device", device, lambda name, text: parse_choice(name, text, _DEVICES)),
        "encoder": _maybe("--encoder", encoder, lambda name, text: parse_choice(name, text, _ENCODERS)),
        # A flag that is not given says nothing: the file may have set it.
        **{name: True for name, on in flags.items() if on},
    }
    return _spec(source, output, spec_file, {field: value for field, value in given.items() if value is not None})


def _spec(source: str, output: str, spec_file: str | None, given: dict[str, Any]) -> TranscodeSpec:
    names = {"source": parse_path("INPUT", source), "output": parse_path("OUTPUT", output)}
    if spec_file is None:
        return _validated(names | given)
    return load_spec(parse_path("--spec", spec_file), **names, **given)


def _maybe(option: str, typed: str | list[str] | None, parse: Parser) -> Any:  # noqa: ANN401 - what the parser returns
    """Parse what was typed; an option that was not given (a repeatable one: an empty list) says nothing."""
    return None if typed is None or typed == [] else parse(option, typed)


_OPTION_OF_FIELD: Final = {
    "bitrate_bps": "--bitrate",
    "maxrate_bps": "--maxrate",
    "bufsize_bits": "--bufsize",
    "encoder_options": "--encoder-option",
    "start_s": "--start",
    "end_s": "--end",
    "audio_tracks": "--audio-track",
    "segment_s": "--segment-seconds",
    "source": "INPUT",
    "output": "OUTPUT",
}
_SPOKEN: Final = {
    "quality and bitrate": "--quality and --bitrate",
    "maxrate and bufsize": "--maxrate and --bufsize",
    "the end must come after the start": "--end must come after --start",
    "the size to scale to": "--scale",
}


def _validated(fields: dict[str, Any]) -> TranscodeSpec:
    try:
        return TranscodeSpec(**fields)
    except ValidationError as error:
        raise UsageError(_as_typed(error), "See codecfleet transcode --help.") from None


def _as_typed(error: ValidationError) -> str:
    """Return what the model objects to first, in the names of the command line."""
    first = error.errors()[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["loc"]:
        field = str(first["loc"][0])
        option = _OPTION_OF_FIELD.get(field, f"--{field.replace('_', '-')}")
        return f"{option}: {message[:1].lower()}{message[1:]}"
    for spoken, typed in _SPOKEN.items():
        message = message.replace(spoken, typed)
    return message


def with_spec_options(
    command: Callable[..., ReturnT], *, default_output: Callable[[str], str] | None = None
) -> Callable[..., ReturnT]:
    """Return ``command``, whose first parameter is a ``TranscodeSpec``, with the options of ``build_spec`` instead.

    Args:
        command: a typer command; its other parameters stay, after ours.
        default_output: makes OUTPUT optional, and names it after INPUT when it is left out.
    """
    shared = inspect.signature(build_spec).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    def wrapper(**values: Any) -> ReturnT:  # noqa: ANN401 - typer passes what the signature below says
        kept = {parameter.name: values.pop(parameter.name) for parameter in own}
        if values["output"] is None and default_output is not None:
            values["output"] = default_output(values["source"])
        return command(build_spec(**values), **kept)

    parameters = [
        _optional(parameter) if parameter.name == "output" and default_output is not None else parameter
        for parameter in shared.values()
    ]
    signature = inspect.Signature([*parameters, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)])
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    wrapper.__doc__ = command.__doc__
    return wrapper


def _optional(output: inspect.Parameter) -> inspect.Parameter:
    annotation = Annotated[
        str | None,
        typer.Argument(
            metavar="OUTPUT",
            help="The file that would be written; its extension names the container. Default: an mp4.",
            show_default=False,
        ),
    ]
    return output.replace(annotation=annotation, default=None, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
