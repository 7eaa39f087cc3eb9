"""Reading the repository's documents: their blocks of code, their links, their tables."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code: its language, its text, and where it stands."""

    path: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """Where it stands, for a test's name."""
        return f"{self.path.name}:{self.line}"


def documents() -> list[Path]:
    """Return every Markdown file of the repository that is its own."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        return sorted(REPOSITORY / name for name in listed.stdout.splitlines() if (REPOSITORY / name).is_file())
    folders = ("docs", "examples", "benchmarks", "deploy", "configs")  # an sdist is no git checkout
    return sorted([*REPOSITORY.glob("*.md"), *(p for folder in folders for p in (REPOSITORY / folder).rglob("*.md"))])


def blocks(path: Path, language: str) -> list[Block]:
    """Return the blocks of ``language`` in a document."""
    text = path.read_text(encoding="utf-8")
    found = [(text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in _BLOCK.finditer(text)]
    return [Block(path, line, kind, body) for line, kind, body in found if kind == language]


def links(path: Path) -> list[str]:
    """Return the targets of a document's links, code left out."""
    return _LINK.findall(_BLOCK.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """Return the anchors that a document's headings make."""
    headings = _HEADING.findall(_BLOCK.sub("", path.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}
