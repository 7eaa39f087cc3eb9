"""How fast a demand could be served with what is free: a bound, to choose between encoder kinds."""

from collections.abc import Sequence
from math import ceil

from ..model.placement import Route
from .ledger import Ledger, Site
from .options import PlacementOption
from .recipes import Recipe


def capacity_fps(wanted: int, options: Sequence[PlacementOption], ledger: Ledger) -> tuple[float, float]:
    """Return how many frames a second ``wanted`` sessions would give at best, and the fastest of them alone.

    Sessions go to the fastest devices first, and to each no more than it takes; (0, 0) where there is no room.
    """
    left, fps, cores = wanted, 0.0, dict[int, float]()
    fastest = 0.0
    for option in sorted(options, key=lambda option: (option.rank, -option.recipe.fps, option.site.order)):
        if left <= 0:
            break
        site, recipe = option.site, option.recipe
        used = cores.get(site.host.index, 0.0)
        sessions = min(left, room_for(site, recipe, ledger, used))
        if sessions <= 0:
            continue
        cores[site.host.index] = used + sessions * recipe.cores
        left -= sessions
        part = 1.0
        for use in recipe.engines:
            part = min(part, use.slowdown(site.loads[use.engine] + sessions * use.load))
        fps += sessions * recipe.fps * part
        fastest = max(fastest, recipe.fps)
    return fps, fastest


def useful_sessions(wanted: int, segments: Sequence[int], options: Sequence[PlacementOption], ledger: Ledger) -> int:
    """Return how many of ``wanted`` sessions open in time to do one of the ``segments`` (frames); 1 at least.

    A host's drivers open GPU sessions one after the other (measured: 0.1 s each, however many GPUs there are), so a
    short job has no use for many. Software sessions open at once.
    """
    if wanted <= 1 or not options or any(option.recipe.route is Route.CPU for option in options):
        return wanted
    times = ledger.hardware.sessions
    hosts = {option.site.host.index: option.site.host.device_sessions for option in options}
    before = sum(hosts.values()) / len(hosts)
    work_s = sum(segments) / max(option.recipe.fps for option in options)
    segment_s = work_s / len(segments)
    opened_s = 0.0
    for number in range(wanted):
        ready_s = times.first_start_s + (before + number // len(hosts)) * times.start_s
        if number:
            done_s = max((work_s + opened_s) / number, ceil(len(segments) / number) * segment_s)
            if ready_s + segment_s >= done_s:
                return number
        opened_s += ready_s
    return wanted


def room_for(site: Site, recipe: Recipe, ledger: Ledger, cores_used: float = 0.0) -> int:
    """Return how many more sessions a device takes, where ``cores_used`` more of its host's cores are taken."""
    host = site.host
    rooms = [ledger.policy.sessions_per_device - site.sessions]
    if host.cores is not None and recipe.cores:
        rooms.append(int((host.cores - host.cores_used - cores_used) / recipe.cores + 1e-9))
    rooms += [int((use.load_most - site.loads[use.engine]) / use.load + 1e-9) for use in recipe.engines]
    if recipe.encoder_sessions:
        capped = [caps.most - caps.open for caps in site.caps if caps.most is not None]
        rooms += [free // recipe.encoder_sessions for free in capped]
    if site.memory_bytes is not None and recipe.device_bytes:
        context = 0 if site.sessions else ledger.context_bytes
        rooms.append((site.memory_bytes - site.memory_used - context) // recipe.device_bytes)
    if host.memory_bytes is not None and recipe.host_bytes:
        rooms.append((host.memory_bytes - host.memory_used) // recipe.host_bytes)
    if not recipe.device_bytes:
        rooms = rooms[1:]
    return max(0, min(rooms))
