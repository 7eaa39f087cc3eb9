"""The configuration from file, environment and command line, with the origin of each value."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import TranscodeSpec, UsageError, load_config
from codecfleet.cli.app import parse, run
from codecfleet.cli.commands.transcode import Transcode
from codecfleet.cli.services import Answer, Services
from codecfleet.jobs.infer.spec import InferSpec
from codecfleet.jobs.request.config import OPTIONS, Config, OriginKind

Configure = Callable[[str], Path]
EVERY_KEY = """
preset=phone,6 segment_s=5 workers=4 priority=5 weight=2 finish_within_s=900 device=gpu encoder=software
keep_evidence=kept wait_s=1:30 deadline_s=2.5 deadline_factor=5 second_runs=3 work=w no_journal=true address=head:1
policy=p.toml autoscale=a.toml idle_s=7 ray=first warm=never cuda_compat=/opt/compat sandbox=off log=json debug=1
max_pixels=1000 max_frame_rate=100 max_duration_s=60 max_tracks=5 max_packets=200 max_attachment_bytes=300
max_pixels_per_byte=400 strict=1 queue=q.sqlite queue_token=q.token
"""


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that writes the user's configuration, and presets beside it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "codecfleet" / "presets").mkdir(parents=True)

    def write(text: str) -> Path:
        path = tmp_path / "codecfleet" / "config.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def config_of(folder: Path, text: str | None = None, **variables: str) -> Config:
    """Return the configuration for a file and an environment."""
    path = folder / "codecfleet" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return load_config({"XDG_CONFIG_HOME": str(folder), **variables})


def cli_spec(line: str = "") -> TranscodeSpec:
    """Return the spec that a command line gives."""
    request = parse(["transcode", "in.mkv", "out.mp4", *line.split()])
    assert isinstance(request, Transcode)
    return request.spec


def infer_spec(line: str) -> InferSpec:
    """Return the spec of an ``infer`` command line."""
    asked: list[InferSpec] = []
    services = Services(infer=lambda spec, _address, _progress: asked.append(spec) or Answer([], {}))
    assert run(["infer", "a", "--loadable", "n.dla", "--output", "o.npz", *line.split()], services) == 0
    return asked[0]


def test_without_a_file_all_are_defaults(tmp_path: Path) -> None:
    """Without a file all values are the job's defaults."""
    config = config_of(tmp_path)
    spec = TranscodeSpec(source="a", output="b.mp4")
    assert not config.origins
    assert not config.variables()
    assert all(
        getattr(config.settings, field) == getattr(spec, field)
        for field in OPTIONS
        if field in TranscodeSpec.model_fields and field != "preset"
    )


def test_the_environment_counts_instead_of_the_file(tmp_path: Path) -> None:
    """The environment replaces the file, and each value knows its origin."""
    text = "# mine\ndevice = 'cpu'\nwait_seconds = 2.5\nstrict = true\naddress = 'file:1'"
    config = config_of(
        tmp_path, text, CODECFLEET_DEVICE="gpu", CODECFLEET_STRICT="0", CODECFLEET_WORKERS="", RAY_ADDRESS="ray:1"
    )
    assert (config.settings.device, config.settings.wait_s, config.settings.strict) == ("gpu", Fraction(5, 2), False)
    assert config.settings.address == "ray:1"
    assert config.origin("device").place == "CODECFLEET_DEVICE"
    assert config.origin("wait_s").place == f"{tmp_path}/codecfleet/config.toml:3"
    assert config.origin("workers").kind is OriginKind.DEFAULT
    assert config.origin("address").place == "RAY_ADDRESS"
    other = tmp_path / "other.toml"
    other.write_text("workers = 3", encoding="utf-8")
    both = {"CODECFLEET_ADDRESS": "ours:1", "RAY_ADDRESS": "ray:1", "CODECFLEET_CONFIG": str(other)}
    config = config_of(tmp_path, text, **both)
    assert (config.settings.address, config.origin("address").place) == ("ours:1", "CODECFLEET_ADDRESS")
    assert (config.settings.workers, config.settings.device, config.path) == (3, "auto", other)


@pytest.mark.parametrize(
    ("text", "variables", "named"),
    [
        ("devic = 'cpu'", {}, r"config\.toml:1: there is no key devic.*Did you mean device\?"),
        ("codec = 'hevc'", {}, r"config\.toml:1.*docs/config\.md"),
        ("[jobs]\ndevice = 'cpu'", {}, "there is no key jobs"),
        ("device = 'tpu'", {}, r"device \(.*config\.toml:1\).*auto, cpu or gpu"),
        ("strict = 1", {}, "true nor false"),
        ("device = 'cpu'\nencoder = 'nvenc'", {}, "exclude each other"),
        ("device =", {}, "not valid TOML"),
        ("idle_s = -1", {}, "idle_s"),
        ("ray = 'soon'", {}, "late or first"),
        ("preset = ['a', 'b']", {}, "not one preset"),
        ("", {"DEVCE": "cpu"}, "there is no variable CODECFLEET_DEVCE.*Did you mean CODECFLEET_DEVICE?"),
        ("", {"CODEC": "hevc"}, "there is no variable"),
        ("", {"DEVICE": "tpu"}, "CODECFLEET_DEVICE 'tpu'"),
        ("", {"STRICT": "yes"}, "CODECFLEET_STRICT 'yes'"),
        ("", {"IDLE_S": "-1"}, "CODECFLEET_IDLE_S '-1'"),
        ("", {"CONFIG": "/missing.toml"}, r"/missing\.toml cannot be read"),
        *(
            ("", {"SENT": sent}, "CODECFLEET_SENT is not from codecfleet submit")
            for sent in ("{", '{"specs": {"a.toml": 1}}', '{"other": {}}', "[" * 10_000)
        ),
    ],
)
def test_a_mistake_is_named(text: str, variables: dict[str, str], named: str, tmp_path: Path) -> None:
    """Every mistake is one UsageError with the file, line and key, or the variable, and the nearest name."""
    with pytest.raises(UsageError, match=named):
        config_of(tmp_path, text, **{f"CODECFLEET_{name}": value for name, value in variables.items()})


def test_variables_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    """Kubernetes' variables for a service called codecfleet, and variables with other prefixes, are ignored."""
    names = ("CODECFLEET_SERVICE_HOST", "CODECFLEET_HEAD_PORT", "CODECFLEET_HEAD_PORT_8265_TCP_ADDR", "MYCODECFLEET_A")
    assert not config_of(tmp_path, **dict.fromkeys(names, "tcp://10.0.0.1:1")).origins


def test_variables_between_processes_are_left_alone(tmp_path: Path) -> None:
    """Commands in a Ray process, or in a driver's job, inherit them."""
    inner = ("CODECFLEET_EVENTS", "CODECFLEET_FAILURE_FD", "CODECFLEET_KEEPER")
    assert not config_of(tmp_path, **dict.fromkeys(inner, "7")).origins


def test_every_key_has_a_variable(tmp_path: Path) -> None:
    """Each key has an environment variable, and values for a cluster's processes are passed on."""
    texts = {field: text for pair in EVERY_KEY.split() for field, _, text in [pair.partition("=")]}
    assert set(texts) >= set(OPTIONS), "give the new key a value"
    given = {f"CODECFLEET_{OPTIONS[field].key.upper()}": text for field, text in texts.items()}
    config = config_of(tmp_path, **given)
    assert set(config.origins) == set(OPTIONS)
    read = ["idle_s", "policy", "autoscale", "ray", "warm", "cuda_compat", "log", "debug", "queue"]
    handed_on = {f"CODECFLEET_{field.upper()}": texts[field] for field in texts if field in read or "max_" in field}
    assert config.variables() == handed_on | {"CODECFLEET_IDLE_S": "7.0"}


def test_a_databases_password_is_not_passed_on(tmp_path: Path) -> None:
    """Other programs can read the environment of a cluster's processes."""
    config = config_of(tmp_path, 'queue = "postgresql://queue:secret@db/films"\nray = "first"')
    assert config.variables() == {"CODECFLEET_RAY": "first"}


def test_the_command_line_counts_instead_of_the_configuration(configure: Configure) -> None:
    """The configuration sets a job's default, and an option replaces it."""
    configure("device = 'cpu'\nworkers = 3\nstrict = true\nwork = '/w'")
    assert cli_spec("--workers 5") == TranscodeSpec(
        source="in.mkv", output="out.mp4", device="cpu", workers=5, strict=True, work="/w"
    )


def test_a_preset_lies_under_a_spec_file_and_options(configure: Configure, tmp_path: Path) -> None:
    """An option replaces the spec file's, which replaces the preset's, which replaces the configuration's."""
    configure("segment_seconds = 9")
    (tmp_path / "codecfleet" / "presets" / "mine.toml").write_text(
        "codec = 'hevc'\nquality = 20\npreset = 2\naudio = 'aac'\nsegment_seconds = 4", encoding="utf-8"
    )
    file = tmp_path / "spec.toml"
    file.write_text("quality = 21\npreset = 3", encoding="utf-8")
    plain = cli_spec("--preset mine")
    assert (plain.quality, plain.preset, plain.audio, plain.segment_s) == (20, 2, "aac", 4)
    over = cli_spec(f"--preset mine --spec {file} --quality 22")
    assert (over.codec, over.quality, over.preset, over.audio) == ("hevc", 22, 3, "aac")
    assert cli_spec(f"--preset mine --spec {file} --preset 7").preset == 7
    assert cli_spec("--bitrate 4M --preset mine").quality is None


def test_a_configured_preset_counts_where_none_is_given(configure: Configure, tmp_path: Path) -> None:
    """A configured preset is ignored with ``--preset``, even if that is only a speed, and with ``--spec``."""
    configure("preset = ['archive-hevc', 2]")
    file = tmp_path / "spec.toml"
    file.write_text("audio = 'aac'", encoding="utf-8")
    assert (cli_spec().codec, cli_spec().preset, cli_spec().quality) == ("hevc", 2, 18)
    assert cli_spec("--preset 6") == TranscodeSpec(source="in.mkv", output="out.mp4", preset=6)
    assert cli_spec(f"--spec {file}") == TranscodeSpec(source="in.mkv", output="out.mp4", audio="aac")
    configure("preset = 'archive-hvc'")
    with pytest.raises(UsageError, match=r"preset \(.*config\.toml:1\): there is no preset archive-hvc"):
        cli_spec()


def test_an_option_and_a_key_that_exclude_each_other_are_both_named(configure: Configure) -> None:
    """If an option and a key exclude each other, the error has both names as the user wrote them."""
    configure("device = 'cpu'")
    with pytest.raises(UsageError, match=r"device \(.*config\.toml:1\).*--encoder"):
        cli_spec("--encoder nvenc")


def test_other_jobs_take_what_they_have_an_option_for(configure: Configure) -> None:
    """``infer`` and ``stills`` also use configured workers and deadlines, but no options of transcoding."""
    configure("workers = 3\ndeadline_seconds = 90\nencoder = 'software'\npreset = 'phone'")
    model = InferSpec(source="a", loadable="n.dla", output="o.npz", workers=3, deadline_s=Fraction(90))
    assert infer_spec("") == model
    assert infer_spec("--workers 5").workers == 5


def test_the_configured_address_is_every_commands(configure: Configure) -> None:
    """Commands use the configured address if none is given."""
    configure("address = 'head:1'")
    plain, given = (parse(["transcode", "a", "b.mp4", *more]) for more in ([], ["--address", "other:1"]))
    assert isinstance(plain, Transcode)
    assert isinstance(given, Transcode)
    assert (plain.address, given.address) == ("head:1", "other:1")


@pytest.mark.parametrize("line", ["transcode a b.mp4", "probe a", "config show", "status"])
def test_a_wrong_configuration_is_one_line_and_exit_2(
    line: str, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake in the configuration is reported by every command at once, but not by help."""
    configure("devise = 'cpu'")
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Did you mean device?" in err
    assert err.count("\n") == 1
    assert run([line.split(maxsplit=1)[0], "--help"]) == 0
    assert capsys.readouterr().err == ""
