"""The values of every NVENC setting in the driver's structures, through the real PyNvVideoCodec.

The simulator writes each field of NV_ENC_INITIALIZE_PARAMS and NV_ENC_CONFIG into its trace, under its name in
nvEncodeAPI.h. So these tests compare our model with the package's own code, and show that the settings codecfleet
refuses would indeed fail.
"""

import json
import random
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from codecfleet.actors.encode.nvenc_settings import LEVELS, NvencSettings
from codecfleet.actors.encode.profiles import NVENC_PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.nvidia.nvenc.inputs import SURFACE_NAMES
from codecfleet.actors.settle.nvenc_options import REFUSED, read_option
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.errors import Unsupported
from tests.sweeps import swept

from .scenario import Scenario, machine
from .simulated_driver import Ran, needs, run_simulated

pytestmark = needs("PyNvVideoCodec")

Fields = dict[str, str]
Options = dict[str, str]

INITIALIZE = "NvEncInitializeEncoder"
ADA = machine("rtx-4090")
BLACKWELL = machine("mixed-200", "blackwell-1")
CODECS = (Codec.H264, Codec.HEVC, Codec.AV1)
BASE: Options = {"rc": "vbr", "bitrate": "3000000", "maxbitrate": "6000000", "bf": "1", "gop": "64", "fps": "30"}
QP: Options = {"rc": "constqp"}
TUNINGS = {"high_quality": 1, "low_latency": 2, "ultra_low_latency": 3, "uhq": 5}
QPS = ("qpInterP", "qpInterB", "qpIntra")
MOST = str(2**32 - 1)
ELSEWHERE = {Codec.H264: {"tier"}, Codec.HEVC: set(), Codec.AV1: {"timinginfo"}}
"""Fields of the model that a codec lacks, so that they are refused."""
LEFT_TO_THE_PRESET = {("temporalaq", "0"), ("ldkfs", "0")}
"""Settings that are not sent, because the package would switch them on: the preset decides."""
MAKE = """
import json, os, sys
import PyNvVideoCodec
from codecfleet.actors.settle.nvenc_options import read_option
from codecfleet.actors.encode.nvenc_settings import NvencSettings
from codecfleet.actors.nvidia.nvenc.device import create_encoder_arguments
faults = []
for surface, options, raw in json.loads(sys.argv[1]):
    arguments = create_encoder_arguments(NvencSettings(**{k: read_option(k, v) for k, v in options.items()})) | raw
    try:
        PyNvVideoCodec.CreateEncoder(640, 480, surface, True, gpu_id=0, **arguments)
        faults.append("")
    except Exception as error:
        faults.append(str(error))
print(json.dumps(faults))
"""


def read_settings(options: Options) -> NvencSettings:
    """Return the settings that pairs of strings state."""
    read: dict[str, Any] = {key: read_option(key, text) for key, text in options.items()}
    return NvencSettings(**read)


def vui(codec: Codec) -> str:
    """Return the prefix of a codec's display information."""
    return f"{codec}Config.{codec}VUIParameters."


def quantizers(prefix: str, *values: int) -> Fields:
    """Return the fields of an NV_ENC_QP."""
    return {f"rcParams.{prefix}.{name}": str(value) for name, value in zip(QPS, values, strict=True)}


def one(field: str, *texts: str) -> list[tuple[Options, str, Fields]]:
    """Return cases whose value arrives unchanged."""
    return [({}, text, {field: text}) for text in texts]


def cases(codec: Codec) -> dict[str, list[tuple[Options, str, Fields]]]:
    """Return for each setting: the settings that it needs, its text, and the expected fields of the driver."""
    own = f"{codec}Config."
    most = 255 if codec is Codec.AV1 else 51
    quality: Options = {"bitrate": "", "maxbitrate": ""}
    constant: Options = QP | quality
    found: dict[str, list[tuple[Options, str, Fields]]] = {
        "codec": [({}, codec.value, {"encodeGUID": f"NV_ENC_CODEC_{codec.value.upper()}_GUID"})],
        "preset": [({}, f"P{n}", {"presetGUID": f"NV_ENC_PRESET_P{n}_GUID"}) for n in range(1, 8)],
        "tuning_info": [
            ({}, text, {"tuningInfo": str(number)})
            for text, number in TUNINGS.items()
            if (text, codec) != ("uhq", Codec.H264)
        ],
        "rc": [
            ({}, "vbr", {"rcParams.rateControlMode": "1"}),
            ({"maxbitrate": ""}, "cbr", {"rcParams.rateControlMode": "2"}),
            (quality | {"constqp": "20"}, "constqp", {"rcParams.rateControlMode": "0"}),
        ],
        "bitrate": [
            *one("rcParams.averageBitRate", "1", "2999999"),
            ({"maxbitrate": MOST}, MOST, {"rcParams.averageBitRate": MOST}),
        ],
        "maxbitrate": one("rcParams.maxBitRate", "3000000", MOST),
        "vbvbufsize": one("rcParams.vbvBufferSize", "1", MOST),
        "vbvinit": [({"vbvbufsize": MOST}, text, {"rcParams.vbvInitialDelay": text}) for text in ("1", "4000", MOST)],
        "fps": [
            ({}, "30000/1001", {"frameRateNum": "30000", "frameRateDen": "1001"}),
            ({}, "25", {"frameRateNum": "25", "frameRateDen": "1"}),
            ({}, "1/2", {"frameRateNum": "1", "frameRateDen": "2"}),
            ({}, f"1/{MOST}", {"frameRateNum": "1", "frameRateDen": MOST}),
            ({}, MOST, {"frameRateNum": MOST, "frameRateDen": "1"}),
        ],
        "cq": [
            (
                quality,
                text,
                {"rcParams.targetQuality": text, "rcParams.averageBitRate": "0", "rcParams.maxBitRate": "0"},
            )
            for text in ("1", "51", *(["63"] if codec is Codec.AV1 else []))
        ],
        "constqp": [
            (constant, f"0,30,{most}", quantizers("constQP", 0, 30, most)),
            (constant, "17", quantizers("constQP", 17, 17, 17)),
        ],
        "initqp": [
            ({}, "10,20,30", quantizers("initialRCQP", 10, 20, 30) | {"rcParams.enableInitialRCQP": "1"}),
            ({}, f"0,1,{most}", quantizers("initialRCQP", 0, 1, most) | {"rcParams.enableInitialRCQP": "1"}),
        ],
        "qmax": [
            ({}, "40,41,42", quantizers("maxQP", 40, 41, 42) | {"rcParams.enableMaxQP": "1"}),
            ({}, f"{most},1,0", quantizers("maxQP", most, 1, 0) | {"rcParams.enableMaxQP": "1"}),
        ],
        "gop": [
            ({"bf": "0"}, "1", {"gopLength": "1", f"{own}idrPeriod": "1"}),
            ({}, "48", {"gopLength": "48", f"{own}idrPeriod": "48"}),
            ({}, MOST, {"gopLength": MOST, f"{own}idrPeriod": MOST}),
        ],
        "idrperiod": [
            ({}, "128", {"gopLength": "64", f"{own}idrPeriod": "128"}),
            ({"gop": "1", "bf": "0"}, MOST, {"gopLength": "1", f"{own}idrPeriod": MOST}),
        ],
        "bf": [({}, str(count), {"frameIntervalP": str(count + 1)}) for count in range(4)],
        "numrefl0": one(own + ("numFwdRefs" if codec is Codec.AV1 else "numRefL0"), "0", "1", "6"),
        "numrefl1": one(own + ("numBwdRefs" if codec is Codec.AV1 else "numRefL1"), "0", "1", "6"),
        "multipass": [({}, "qres", {"rcParams.multiPass": "1"}), ({}, "fullres", {"rcParams.multiPass": "2"})],
        "lookahead": [
            ({}, text, {"rcParams.enableLookahead": "1", "rcParams.lookaheadDepth": text}) for text in ("1", "30")
        ],
        "aq": [
            ({}, "1", {"rcParams.enableAQ": "1", "rcParams.aqStrength": "1"}),
            ({}, "15", {"rcParams.enableAQ": "1", "rcParams.aqStrength": "15"}),
            ({}, "auto", {"rcParams.enableAQ": "1", "rcParams.aqStrength": "0"}),
        ],
        "temporalaq": [({}, text, {"rcParams.enableTemporalAQ": text}) for text in ("0", "1")],
        "ldkfs": [({}, text, {"rcParams.lowDelayKeyFrameScale": text}) for text in ("0", "1")],
        "level": [({}, name, {f"{own}level": str(number)}) for name, number in LEVELS[codec].items()],
    }
    return found | ({} if codec is Codec.H264 else _tiers(own)) | ({} if codec is Codec.AV1 else _headers(codec))


def _tiers(own: str) -> dict[str, list[tuple[Options, str, Fields]]]:
    return {"tier": [({}, text, {f"{own}tier": text}) for text in ("0", "1")]}


def _headers(codec: Codec) -> dict[str, list[tuple[Options, str, Fields]]]:
    own = f"{codec}Config."
    timing = {"timingInfoPresentFlag": "1", "numUnitInTicks": "1001", "timeScale": "60000"}
    return {
        "timinginfo": [({}, "1001/60000", {vui(codec) + name: value for name, value in timing.items()})],
        "repeatspspps": [
            ({}, "1", {f"{own}repeatSPSPPS": "1", f"{own}disableSPSPPS": "0"}),
            ({}, "0", {f"{own}repeatSPSPPS": "0", f"{own}disableSPSPPS": "1"}),
        ],
        "lossless": [
            (QP | {"bitrate": "", "maxbitrate": "", "constqp": "0"}, "lossless", {"tuningInfo": "4"}),
        ],
    }


def options_of(codec: Codec, name: str, others: Options, text: str) -> Options:
    """Return the options of a case: the base, the needed settings, and the setting; "" leaves an option out."""
    key = "tuning_info" if name == "lossless" else name
    chosen = {"codec": codec.value} | BASE | others | {key: text}
    return {key: value for key, value in chosen.items() if value}


def groups(ran: Ran) -> list[Fields]:
    """Return the arguments of each call of NvEncInitializeEncoder."""
    found: list[Fields] = []
    for line in ran.trace:
        if line.function == INITIALIZE and line.is_call:
            found.append({})
        elif line.function == INITIALIZE:
            found[-1] |= line.values
    return found


def initialized(wanted: list[tuple[str, Options, dict[str, Any]]], *, blackwell: bool = False) -> list[Fields]:
    """Make encoders in a child process; return the driver's fields of each."""
    ran = run_simulated(
        MAKE,
        Scenario(machine=BLACKWELL if blackwell else ADA),
        visible_devices="1" if blackwell else "0",
        arguments=[json.dumps(wanted)],
    )
    assert ran.exit_code == 0, ran.stderr
    found = groups(ran)
    assert len(found) == len(wanted), ran.stdout
    return found


@cache
def arrived(codec: Codec) -> dict[tuple[str, str], Fields]:
    """Return the driver's fields for each setting and text."""
    keys = [(name, text, others) for name, rows in cases(codec).items() for others, text, _ in rows]
    wanted: list[tuple[str, Options, dict[str, Any]]] = [
        ("NV12", options_of(codec, name, others, text), {}) for name, text, others in keys
    ]
    found = initialized(wanted)
    return {(name, text): fields for (name, text, _), fields in zip(keys, found, strict=True)}


@pytest.mark.parametrize("codec", CODECS)
def test_every_setting_has_a_case(codec: Codec) -> None:
    """Every field of the model has a case with each codec, or the codec refuses it."""
    wanted = {entry.name for entry in fields(NvencSettings)}
    tried = {"tuning_info" if name == "lossless" else name for name in cases(codec)}
    lacking = ELSEWHERE[codec] | ({"repeatspspps"} if codec is Codec.AV1 else set())
    assert wanted - tried == lacking
    assert tried <= wanted
    for name in ELSEWHERE[codec]:
        with pytest.raises(Unsupported, match=name):
            read_settings({"codec": codec.value} | BASE | {name: {"tier": "0"}.get(name, "1/50")})


@pytest.mark.parametrize(
    ("codec", "name"),
    swept(((codec, name) for codec in CODECS for name in cases(codec)), is_slow=lambda case: case[0] is not Codec.H264),
)
def test_each_value_asked_for_is_the_value_in_the_drivers_structure(codec: Codec, name: str) -> None:
    """Every value of every setting arrives in its field of nvEncodeAPI.h."""
    for _, text, expected in cases(codec)[name]:
        got = arrived(codec)[name, text]
        assert {field: got.get(field) for field in expected} == expected, f"{name}={text}"


def mixed(codec: Codec, chooser: random.Random) -> tuple[Options, Fields]:
    """Return many settings that can be combined, and the expected fields of the driver."""
    options: Options = {"codec": codec.value} | BASE
    expected: Fields = {}
    rows = [(name, row) for name, found in cases(codec).items() if name not in ("codec", "lossless") for row in found]
    chooser.shuffle(rows)
    for name, (others, text, told) in rows:
        tried = options | {name: text}
        if others or (name in options and name not in BASE) or (name, text) in LEFT_TO_THE_PRESET:
            continue
        try:
            read_settings(tried)
        except Unsupported:
            continue
        options, expected = tried, expected | told
    return options, expected


@pytest.mark.parametrize("codec", swept(CODECS))
def test_settings_do_not_disturb_each_other(codec: Codec) -> None:
    """In many combinations of settings, each value still arrives unchanged."""
    chooser = random.Random(7)  # noqa: S311 - the same combinations in every run
    mixtures = [mixed(codec, chooser) for _ in range(24)]
    assert min(len(options) for options, _ in mixtures) >= 20
    found = initialized([("NV12", options, {}) for options, _ in mixtures])
    for (options, expected), got in zip(mixtures, found, strict=True):
        assert {field: got.get(field) for field in expected} == expected, options


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_left_to_the_preset_is_the_presets(codec: Codec) -> None:
    """A setting that was not given changes no field: bare settings equal the preset's own configuration."""
    plain: Options = {"codec": codec.value, "rc": "constqp", "constqp": "20"}
    (got,) = initialized([("NV12", plain, {})])
    for field in ("enableAQ", "enableTemporalAQ", "enableLookahead", "multiPass", "enableMaxQP", "lookaheadDepth"):
        assert got[f"rcParams.{field}"] == "0"
    assert (got["maxEncodeWidth"], got["maxEncodeHeight"]) == ("640", "480")


@pytest.mark.parametrize("codec", swept(CODECS))
def test_what_is_refused_as_dropped_is_dropped(codec: Codec) -> None:
    """The package accepts those keys but ignores them, so accepting them would mislead a user."""
    values = {"slice": {"mode": 3, "data": 4}}
    dropped = [key for key, (reason, _) in REFUSED.items() if "drops" in reason and key != "gpuid"]
    options = {"codec": codec.value} | BASE
    rows: list[tuple[str, Options, dict[str, Any]]] = [("NV12", options, {})]
    raw = [{key: values.get(key, 1)} for key in dropped] + [{"gpuid": 3}, {"level": 41}]
    rows += [("NV12", options, given) for given in raw]
    base, *others = initialized(rows)
    changed = [given for given, fields in zip(raw, others, strict=True) if fields != base]
    assert changed == []


def test_what_is_refused_as_misread_is_misread() -> None:
    """The package drops the key "qmin", and turns switches on even for 0, so it gets neither."""
    options = {"codec": "h264"} | BASE
    raw: list[dict[str, Any]] = [
        {"qmin": [20, 21, 22]},
        {"aq": 0},
        {"temporalaq": 0},
        {"ldkfs": 7},
        {"repeatspspps": 0},
    ]
    qmin, aq, temporal, scale, repeats = initialized([("NV12", options, given) for given in raw])
    assert qmin["rcParams.enableMinQP"] == "1"
    assert qmin["rcParams.minQP.qpInterP"] != "20"
    assert (aq["rcParams.enableAQ"], temporal["rcParams.enableTemporalAQ"]) == ("1", "1")
    assert scale["rcParams.lowDelayKeyFrameScale"] == "1"
    assert repeats["h264Config.repeatSPSPPS"] == "1"


@pytest.mark.parametrize("codec", CODECS)
def test_every_surface_is_coded_as_our_table_has_it(codec: Codec) -> None:
    """A surface is coded with its own bit depth and chroma."""
    kept = [found for name in NVENC_PROFILES[codec].pix_fmts if (found := surface_format(name)) is not None]
    rows: list[tuple[str, Options, dict[str, Any]]] = [
        (SURFACE_NAMES[each.layout], {"codec": codec.value} | BASE, {}) for each in kept
    ]
    for surface, got in zip(kept, initialized(rows, blackwell=True), strict=True):
        number = {"4:2:0": "1", "4:2:2": "2", "4:4:4": "3"}[surface.chroma]
        assert got[f"{codec}Config.outputBitDepth"] == str(surface.bits), surface
        assert got[f"{codec}Config.chromaFormatIDC"] == number, surface
