"""The page: one file without anything from elsewhere, and the policy that lets a browser load and run nothing more."""

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_INLINE: Final = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """The page's bytes, and its Content-Security-Policy."""

    html: bytes
    policy: str


@cache
def load_page() -> Page:
    """Return the page; its style and script are allowed by their hashes, and nothing else is."""
    html = files(__package__).joinpath("page.html").read_bytes()
    hashes = {kind.decode(): _hash(content) for kind, content in _INLINE.findall(html)}
    rules = [
        "default-src 'none'",
        f"style-src {hashes['style']}",
        f"script-src {hashes['script']}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return Page(html, "; ".join(rules))


def _hash(content: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"
