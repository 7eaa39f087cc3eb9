"""Stores values until a Ray cluster ends: in Ray's key-value store, or else in an actor on the head."""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from .guard import why_unknown
from .nodes import ON_HEAD

_KEEPER: Final = {"name": "codecfleet-keeper", "namespace": "codecfleet"}


def keep_in_cluster(key: str, value: bytes) -> None:
    """Store a value until the cluster ends."""
    if (put := _store_call("_internal_kv_put", "key", "value", "overwrite")) is not None:
        put(key, value, overwrite=True)
    else:
        _ask_keeper(lambda keeper: keeper.put.remote(key, value))


def claim_in_cluster(key: str) -> bool:
    """Store an empty value under a key; return False if the key already has a value."""
    if (put := _store_call("_internal_kv_put", "key", "value", "overwrite")) is not None:
        return not put(key, b"", overwrite=False)
    return bool(_ask_keeper(lambda keeper: keeper.claim.remote(key)))


def keys_in_cluster(prefix: str) -> list[str]:
    """Return the keys that have a value and begin with ``prefix``."""
    if (listed := _store_call("_internal_kv_list", "prefix")) is not None:
        return [key.decode() for key in listed(prefix)]
    return list(_ask_keeper(lambda keeper: keeper.keys.remote(prefix)))


def kept_in_cluster(key: str) -> bytes | None:
    """Return the value of a key; None if it has none. Starts no actor in the cluster."""
    import ray

    found: bytes | None = None
    if (get := _store_call("_internal_kv_get", "key")) is not None:
        found = get(key)
    else:
        with suppress(ValueError):  # no value was ever stored
            keeper: Any = ray.get_actor(**_KEEPER)
            found = ray.get(keeper.get.remote(key))
    return found


def _store_call(name: str, *arguments: str) -> Callable[..., Any] | None:
    """Return a function of Ray's key-value store; None if the function's signature differs."""
    if why_unknown({f"internal_kv.{name}": arguments}, "ray.experimental"):
        return None
    call: Callable[..., Any] = getattr(import_module("ray.experimental.internal_kv"), name)
    return call


def _ask_keeper(question: Callable[[Any], Any]) -> Any:
    """Ask the actor that replaces the key-value store; start the actor if it does not exist."""
    import ray

    options = {"lifetime": "detached", "get_if_exists": True, "num_cpus": 0, "resources": ON_HEAD}
    keeper = ray.remote(_Keeper).options(**_KEEPER, **options).remote()
    return ray.get(question(keeper))


class _Keeper:
    """A dictionary that runs as an actor."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def claim(self, key: str) -> bool:
        is_free = key not in self._values
        self._values.setdefault(key, b"")
        return is_free

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._values if key.startswith(prefix)]
