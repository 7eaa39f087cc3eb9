"""The file of ``--keys``: which key each track gets, and what is refused without repeating a secret."""

from pathlib import Path

import pytest

from codecfleet.errors import UsageError
from codecfleet.jobs.package.keys import Keys, read_keys
from codecfleet.jobs.package.values import Scheme

KIDS = ["00112233-4455-6677-8899-AABBCCDDEEFF", "11" * 16, "22" * 16]
SECRETS = ["0123456789abcdef0123456789ABCDEF", "dd" * 16, "ee" * 16]


def entry(number: int = 0, more: str = "", *, kid: str = "", key: str = "") -> str:
    """Return the text of a [[key]]."""
    return f'[[key]]\nkid = "{kid or KIDS[number]}"\nkey = "{key or SECRETS[number]}"\n{more}\n'


def keys(folder: Path, text: str) -> Keys:
    """Read a file with this text for a preset with the renditions 720p and 360p."""
    path = folder / "keys.toml"
    path.write_text(text, encoding="utf-8")
    return read_keys(str(path), ["720p", "360p"])


def test_a_track_gets_the_key_of_its_name_then_of_its_kind_then_of_all(tmp_path: Path) -> None:
    """The most exact entry counts; a rendition that is left out needs no track."""
    text = entry(0, 'tracks = ["720p", "sound-2"]') + entry(1, 'tracks = ["video"]') + entry(2, 'uri = "skd://one"')
    found = keys(tmp_path, text).of({"720p": "720p", "360p": "360p", "720p-2": "720p"}, ["sound-1", "sound-2"])
    assert {
        name: SECRETS.index(next(s for s in SECRETS if bytes.fromhex(s) == key.key)) for name, key in found.items()
    } == {
        "720p": 0,
        "360p": 1,
        "720p-2": 0,
        "sound-1": 2,
        "sound-2": 0,
    }
    assert found["720p"].kid == bytes.fromhex("00112233445566778899aabbccddeeff")
    assert (found["sound-1"].uri, found["sound-1"].format, found["sound-1"].scheme) == (
        "skd://one",
        "identity",
        Scheme.CBCS,
    )


def test_no_track_stays_clear_by_accident(tmp_path: Path) -> None:
    """A track without a key is refused."""
    with pytest.raises(UsageError, match="no key for 360p, sound-1"):
        keys(tmp_path, entry(0, 'tracks = ["720p"]')).of({"720p": "720p", "360p": "360p"}, ["sound-1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one"),
        (f'{SECRETS[0]} = "{KIDS[0]}"', "at least one"),
        (f"{SECRETS[0]}:{KIDS[0]}", "not valid TOML"),
        (f'[[key]]\nkid = "{KIDS[0]}"\nkey = {SECRETS[1]}', "not valid TOML"),
        (f"[{SECRETS[0]}]\na = 1\n[{SECRETS[0]}]", "not valid TOML"),
        ('scheme = "cens"\n' + entry(), "neither cbcs nor cenc"),
        (entry(kid="00"), r"\[\[key\]\] 1 has no kid of 32"),
        (entry(0) + entry(1, key=SECRETS[1][1:]), r"\[\[key\]\] 2 has no key of 32"),
        (entry(key=SECRETS[0] + "00"), "no key of 32"),
        (f'[[key]]\nkid = "{KIDS[0]}"', "no key of 32"),
        (entry(0, f'{SECRETS[1]} = "x"'), "may have only"),
        (entry(0, 'tracks = ["720p"]') + entry(0, key=SECRETS[1]), "kid of an earlier key"),
        (entry(0) + entry(1), "already has a key"),
        (entry(0, 'tracks = ["480p"]'), "none of 360p, 720p, audio, video"),
        (entry(0, f'tracks = ["{SECRETS[1]}"]'), "none of"),
        (entry(0, "tracks = []"), "not a list"),
        (entry(0, "uri = 5"), "uri that is not text"),
        (entry(0, r'uri = "skd://one\n#EXT-X-ENDLIST"'), "quotes or spaces"),
        (entry(0, 'tracks = ["audio-2"]'), "none of"),
    ],
)
def test_a_wrong_file_is_refused_without_its_secrets(tmp_path: Path, text: str, said: str) -> None:
    """The message names the entry, and repeats nothing of the file."""
    with pytest.raises(UsageError, match=said) as caught:
        keys(tmp_path, text)
    shown = f"{caught.value} {caught.value.message} {caught.value.next_step}".lower()
    assert not [each for each in SECRETS if each[:8].lower() in shown]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(UsageError, match=r"none\.toml cannot be read"):
        read_keys(str(tmp_path / "none.toml"), ["720p"])


def test_a_path_with_a_nul_character_is_refused() -> None:
    """No file has such a name, and Python would raise a ValueError."""
    with pytest.raises(UsageError, match="NUL"):
        read_keys("keys\0.toml", ())


def test_no_representation_shows_the_key(tmp_path: Path) -> None:
    """A key that is printed by accident is not shown."""
    read = keys(tmp_path, entry())
    assert bytes.fromhex(SECRETS[0]).hex() not in repr(read)
    assert repr(bytes.fromhex(SECRETS[0])) not in repr(read)
