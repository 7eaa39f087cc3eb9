"""The values of NVDEC's and NVENC's options as text: what they share."""

__all__ = ["switch", "whole_number"]


def whole_number(text: str, hint: str = "") -> int:
    """Return the number that decimal digits write; ``hint`` ends the error's message.

    Raises:
        ValueError: it is none.
    """
    if not (text.isascii() and text.isdigit()):
        message = f"not a whole number{hint}"
        raise ValueError(message)
    return int(text)


def switch(text: str) -> bool:
    """Return what 0 or 1 says.

    Raises:
        ValueError: it is neither.
    """
    if text not in ("0", "1"):
        message = "not 0 or 1"
        raise ValueError(message)
    return text == "1"
