"""The running host: a pool, served over the inherited socket until the client closes it or is gone."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..client.client_name import ClientName
from ..client.connected_pool import ConnectedPool
from ..process.program import run_to_the_end
from .serving import BEAT_S, PoolServer
from .wire import WireChannel


def serve(pool_of: Callable[..., ConnectedPool], end: socket.socket, settings: Sequence[Any]) -> None:
    """Serve a pool over ``end``; the settings are ``[address, slots, dlas, [fleet, number]]``."""
    address, slots, dlas, name = settings
    pool = pool_of(address, slots, dlas=dlas, name=ClientName(*name))
    end_with_ray(pool.lost)
    run_to_the_end(PoolServer(WireChannel(end), pool, pool.lost).run())


def end_with_ray(lost: Callable[[], str], last_act: Callable[[], object] = bool) -> None:
    """Have this process end once its Ray is gone, after ``last_act``; the event loop may hang in Ray for a minute."""

    def watch() -> None:
        while not (reason := lost()):
            time.sleep(BEAT_S)
        print(reason, file=sys.stderr, flush=True)  # noqa: T201 - the last line is told to the user
        last_act()
        os._exit(1)

    threading.Thread(target=watch, name="codecfleet-watch", daemon=True).start()
