"""Plain words: none of a private dialect in code, tests, documents, examples and configs; one name for one thing."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".toml", ".c", ".h", ".sh", ".in", ".yml", ".yaml", ""}

WORDS = (
    "mend|mends|mended|mending|mender|nobody|whoever|anew|in vain|come what may|hasty|hastily|lent|undertaker|hopeless"
    "|hopelessly|troubled|parcel|parcels|seat|seats|pulse|pulses|insist|insists|insisted|of its own accord|prospect"
    "|prospects|so many|its way|narrator|to_its_end|passed_values|close_the_gap|spoken_errors|objection|objections"
    "|conversation"
)
NAMES = re.compile(r"\b(?:Hands|Shell|Link|SeatBook|Worn|ParcelPost|FAREWELL_S|LentMemory|Mender|NotApplicable|Wish)\b")
"""Names left behind in code; some are ordinary words elsewhere."""
IDENTIFIERS = frozenset(
    {"wish", "wishes", "worn", "dress", "dressed", "learn", "truth", "fitness", "farewell", "hands"}
)
"""Plain words of prose that say nothing as a name."""
_LETTER = "[A-Za-z]"
FORBIDDEN = re.compile(
    rf"(?<!{_LETTER})(?i:{WORDS.replace(' ', '[ _]')})(?!{_LETTER})"
    # "is no X" for "is not an X"; "there is no", "is no longer" and "is no larger" are plain.
    r"|(?<![Tt]here )\b(?:is|are) no\b(?! longer\b| more\b| less\b| fewer\b| better\b| larger\b| smaller\b| higher\b)"
)

CLEAN = (
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "actors",
    "benchmarks",
    "cluster",
    "codecfleet",
    "configs",
    "deploy",
    "docs",
    "examples",
    "jobs",
    "tests",
)
ALLOWED = {
    "tests/docs/test_vocabulary.py": "it lists the words",
    "benchmarks/results": "records of runs, with the names of their time",
}


def texts(name: str) -> Iterator[Path]:
    """Yield the text files of a folder, or a file itself."""
    path = REPOSITORY / name
    for each in [path] if path.is_file() else sorted(path.rglob("*")):  # rglob follows no links
        place = each.relative_to(REPOSITORY)
        if each.is_file() and each.suffix in SUFFIXES and not any(place.is_relative_to(other) for other in ALLOWED):
            yield each


def slips(text: str, *, is_code: bool = True) -> list[str]:
    """Return the forbidden words of a text, each with its line's number."""
    patterns = (FORBIDDEN, NAMES) if is_code else (FORBIDDEN,)
    return [
        f"{number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern in patterns
        for match in pattern.finditer(line)
    ]


def private_names(text: str) -> list[str]:
    """Return the identifiers of a program that are, or contain, such a word."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    return sorted(name for name in names if IDENTIFIERS.intersection(name.lower().split("_")))


def test_names_are_the_fields() -> None:
    """No program has a name of the private dialect, in whole or in part."""
    programs = [path for name in CLEAN for path in texts(name) if path.suffix == ".py"]
    found = {str(path): names for path in programs if (names := private_names(path.read_text(encoding="utf-8")))}
    assert found == {}
    assert private_names("def a_last_farewell(wish): pass") == ["a_last_farewell", "wish"]


@pytest.mark.parametrize("name", CLEAN)
def test_words_are_plain(name: str) -> None:
    """No file has a word or a name of the private dialect."""
    files = list(texts(name))
    assert files
    found = [
        f"{path.relative_to(REPOSITORY)}:{slip}"
        for path in files
        for slip in slips(path.read_text(encoding="utf-8"), is_code=path.suffix == ".py")
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["Nobody asks.", "def mend_times():", "SEAT = 1", "class Hands(ABC):", "an oddity is no error", "so many slots"],
)
def test_a_slip_is_found(line: str) -> None:
    """In prose, in names, in constants."""
    assert len(slips(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "there is no GPU",
        "it is no longer there",
        "it is no larger",
        "recommended",
        "the kernel hands it out",
        "on silent",
    ],
)
def test_plain_words_pass(line: str) -> None:
    """Plain English, and words that only contain a forbidden one."""
    assert slips(line) == []
