"""Pickles that hold the fields of our values by name, for what passes between processes of two releases.

A dataclass's own pickle holds its values in order, so one field more or less would shift all that follow. By name, the
reader leaves out what it does not know, and gives what is missing its default. The same goes for pydantic's models.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_OURS: Final = f"{__name__.partition('.')[0]}."
_OUT_OF_BAND: Final = 5
"""The first protocol of pickle that lets large buffers lie beside a pickle (PEP 574)."""

Buffer: TypeAlias = bytes | bytearray | memoryview | pickle.PickleBuffer
KeepAside: TypeAlias = Callable[[pickle.PickleBuffer], object]


class Message:
    """A value that is pickled by name, with all of ours in it, by any pickler."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        buffers: list[pickle.PickleBuffer] = []
        keep_aside = buffers.append if index(protocol) >= _OUT_OF_BAND else None
        return unpacked, (packed(self, keep_aside), *buffers)


def packed(value: object, keep_aside: KeepAside | None = None) -> bytes:
    """Return a value as bytes; ``keep_aside`` is given each large buffer, which is then not among them."""
    file = io.BytesIO()
    ByName(file, buffer_callback=keep_aside).dump(value)
    return file.getvalue()


def unpacked(content: bytes, *buffers: Buffer) -> Any:  # noqa: ANN401 - whatever was packed
    """Return a packed value, given the buffers that were kept aside; errors of its classes are raised as they are."""
    return pickle.loads(content, buffers=buffers)  # noqa: S301 - from a process of ours


class ByName(pickle.Pickler):
    """Pickles our dataclasses and models by name."""

    def __init__(self, file: io.BytesIO, *, buffer_callback: KeepAside | None = None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=buffer_callback)

    def reducer_override(self, value: object) -> Any:  # noqa: ANN401 - as pickle has it
        """Return how a value of ours is to be rebuilt; everything else is pickled as ever."""
        return reduced(value)


def reduced(value: object) -> Any:  # noqa: ANN401 - as pickle has it: NotImplemented too
    """Return how a pickler's reader is to rebuild a value of ours; NotImplemented for any other."""
    kind: Any = type(value)
    if not kind.__module__.startswith(_OURS):
        return NotImplemented
    if hasattr(kind, "__dataclass_fields__"):
        return rebuilt, (kind, {each.name: getattr(value, each.name) for each in _fields(kind)})
    if hasattr(kind, "model_construct"):
        return rebuilt_model, (kind, dict(vars(value)))
    return NotImplemented


def rebuilt(kind: "type[DataclassInstance]", values: Mapping[str, object]) -> object:
    """Return a dataclass with these values of its fields, as far as it has them, and the defaults of the others.

    Raises:
        TypeError: a field without a default is missing.
    """
    found: object = object.__new__(kind)
    for each in _fields(kind):
        object.__setattr__(found, each.name, values[each.name] if each.name in values else _default(kind, each))
    return found


def rebuilt_model(kind: Any, values: Mapping[str, object]) -> object:  # noqa: ANN401 - any model's class
    """Return a model with these values of its fields, as far as it has them; they were checked where it was made."""
    return kind.model_construct(**{name: value for name, value in values.items() if name in kind.model_fields})


def _default(kind: type, field: "Field[Any]") -> object:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    raise TypeError(f"{kind.__name__} came without {field.name}")


@cache
def _fields(kind: "type[DataclassInstance]") -> tuple["Field[Any]", ...]:
    return fields(kind)
