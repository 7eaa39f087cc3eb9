"""Secrets in addresses are never shown."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import StorageFailed, redacted

HIDDEN = "Hidden0Value"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"https://me:{HIDDEN}@host/film.mkv", "https://me:***@host/film.mkv"),
        (f"ftp://:{HIDDEN}@host:21/film.mkv", "ftp://:***@host:21/film.mkv"),
        (
            f"https://b.s3.amazonaws.com/f.mp4?X-Amz-Date=2026&X-Amz-Credential=AK{HIDDEN}%2F2026&X-Amz-Signature={HIDDEN}",
            "https://b.s3.amazonaws.com/f.mp4?X-Amz-Date=2026&X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        (f"https://a.blob/f.mp4?sv=2024&sig={HIDDEN}%3D&se=1", "https://a.blob/f.mp4?sv=2024&sig=***&se=1"),
        (f"https://host/f.mp4?token={HIDDEN}#t=1", "https://host/f.mp4?token=***#t=1"),
        (f"zip://a.mkv::https://host/f.zip?api_key={HIDDEN}", "zip://a.mkv::https://host/f.zip?api_key=***"),
    ],
)
def test_what_lets_somebody_in_is_left_out(address: str, shown: str) -> None:
    """Passwords, signatures, keys and tokens are hidden; the rest of the address and the text around it stay."""
    assert redacted(address) == shown
    assert redacted(f"there is nothing at '{address}', nor at {address}") == (
        f"there is nothing at '{shown}', nor at {shown}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "film?token=a&b.mkv",
        "a:b@c",
        "s3://bucket/a:b@c.mkv",
        "http://host:8080/film.mkv?quality=3",
        "C:// nothing@here",
    ],
)
def test_other_texts_stay(text: str) -> None:
    """Names of local files, ports, and parameters that are no secrets are shown."""
    assert redacted(text) == text


@given(st.text())
def test_it_is_done_once(text: str) -> None:
    """A redacted text stays as it is if it is redacted again."""
    assert redacted(redacted(text)) == redacted(text)


def test_errors_show_no_secret() -> None:
    """Neither an error's message nor its next step has a secret, on either side of a process boundary."""
    error = StorageFailed(f"https://me:{HIDDEN}@host/f is gone", f"Try https://host/f?sig={HIDDEN}")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert HIDDEN not in f"{error} {error!r} {error.args} {again} {again!r}"
    assert str(again) == "https://me:***@host/f is gone. Try https://host/f?sig=***"
