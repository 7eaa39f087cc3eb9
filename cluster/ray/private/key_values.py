"""What is kept in a Ray cluster for as long as it lives: in its key-value store, or else in an actor on its head."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from .guard import why_unknown
from .nodes import ON_HEAD

_KEEPER: Final[Mapping[str, Any]] = {"name": "codecfleet-keeper", "namespace": "codecfleet"}


def keep_in_cluster(key: str, value: bytes) -> None:
    """Store a value for the cluster's life in Ray's key-value store; or else in an actor."""
    if (put := _store_call("_internal_kv_put", "key", "value", "overwrite")) is not None:
        put(key, value, overwrite=True)
    else:
        _got(_keeper().put.remote(key, value))


def claim_in_cluster(key: str) -> bool:
    """Store an empty value under a key as ``keep_in_cluster`` does, unless there is one; return whether it did."""
    if (put := _store_call("_internal_kv_put", "key", "value", "overwrite")) is not None:
        return not put(key, b"", overwrite=False)
    return bool(_got(_keeper().claim.remote(key)))


def keys_in_cluster(prefix: str) -> list[str]:
    """Return the keys that begin with ``prefix`` of all that was kept or claimed."""
    if (listed := _store_call("_internal_kv_list", "prefix")) is not None:
        return [key.decode() for key in listed(prefix)]
    return list(_got(_keeper().keys.remote(prefix)))


def kept_in_cluster(key: str) -> bytes | None:
    """Return what ``keep_in_cluster`` stored last; None if nothing."""
    found: bytes | None = None
    if (get := _store_call("_internal_kv_get", "key")) is not None:
        found = get(key)
    else:
        with suppress(ValueError):  # nothing was ever kept
            found = _got(_keeper(make=False).get.remote(key))
    return found


def _store_call(name: str, *arguments: str) -> Callable[..., Any] | None:
    """Return a call of Ray's key-value store; None where it is not as expected."""
    if why_unknown({f"internal_kv.{name}": arguments}, "ray.experimental"):
        return None
    call: Callable[..., Any] = getattr(import_module("ray.experimental.internal_kv"), name)
    return call


def _keeper(*, make: bool = True) -> Any:
    """Return the actor that keeps values where the key-value store is unknown; ``make`` it if there is none."""
    import ray

    if not make:
        return ray.get_actor(**_KEEPER)
    options = {**_KEEPER, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0, "resources": ON_HEAD}
    return ray.remote(_Keeper).options(**options).remote()


def _got(answer: Any) -> Any:
    import ray

    return ray.get(answer)


class _Keeper:
    """A dictionary, as an actor."""

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
