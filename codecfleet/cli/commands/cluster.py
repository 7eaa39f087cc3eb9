"""The commands about machines: ``doctor``, ``nodes`` and ``devices``."""

from dataclasses import replace
from typing import Final

from ...errors import UsageError
from ..params import JSON, address_of, flag, named
from ..question import Question
from ..services import Answer, Commands, Machines, Services

ADDRESS = address_of("Ask every node of this Ray cluster: host:port, or auto. Default: this machine.")
FLEET_FILE = named("--fleet", "FILE.toml", "Show a simulated fleet instead of real machines: docs/doctor.md.")
EVERY = flag("--all", "Show each machine separately, even if machines are identical.")


def _doctor(
    *,
    address: str | None = ADDRESS,
    fleet: str | None = FLEET_FILE,
    fresh: bool = flag("--fresh", "Test every codec again, and ignore cached results."),
    every: bool = EVERY,
    as_json: bool = JSON,
) -> Question:
    machines = _machines(address, fleet, fresh=fresh)
    return Question(ask=lambda services, _progress: _diagnosis(services, machines, every=every), as_json=as_json)


def _nodes(
    *, address: str | None = ADDRESS, fleet: str | None = FLEET_FILE, every: bool = EVERY, as_json: bool = JSON
) -> Question:
    machines = replace(_machines(address, fleet), software=False)
    return Question(ask=lambda services, _progress: inventory(services, machines, every=every), as_json=as_json)


def _devices(
    *,
    address: str | None = ADDRESS,
    fleet: str | None = FLEET_FILE,
    vgpu: bool = flag("--vgpu", "Show vGPU types and instances, as host and guest see them."),
    mig: bool = flag("--mig", "Show MIG instances, and the profiles that can be created."),
    every: bool = EVERY,
    as_json: bool = JSON,
) -> Question:
    if vgpu and mig:
        raise UsageError("--vgpu and --mig exclude each other", "Leave one of them out.")
    part = "vgpu" if vgpu else "mig" if mig else "all"
    machines = _machines(address, fleet)
    return Question(
        ask=lambda services, _progress: _device_list(services, machines, part, every=every), as_json=as_json
    )


COMMANDS: Final[Commands] = {
    "doctor": (_doctor, ["doctor || codecfleet doctor --fresh"]),
    "nodes": (_nodes, ["nodes --address 10.0.0.1:6379"]),
    "devices": (_devices, ["devices --mig --json | jq .nodes"]),
}


def _machines(address: str | None, fleet: str | None, *, fresh: bool = False) -> Machines:
    if address is not None and fleet is not None:
        raise UsageError("--address and --fleet exclude each other", "Leave one of them out.")
    return Machines(address=address, fleet=fleet, fresh=fresh)


def _diagnosis(services: Services, machines: Machines, *, every: bool) -> Answer:
    from ...cluster.doctor.fleet_lines import doctor_lines
    from ...cluster.doctor.inventory_lines import doctor_document

    reports = services.reports(machines)
    document = doctor_document(reports)
    lines = list(doctor_lines(reports, every=every))
    if machines.address is None and machines.fleet is None:
        from ...cluster.sandbox.confine import why_not

        reason = why_not()
        document["sandbox"] = {"possible": not reason, "reason": reason}
        # Inserted before the last line, which is the verdict.
        lines.insert(-1, f"sandbox: missing: {reason}" if reason else "sandbox: commands on local files are confined")
    return Answer(lines, document, exact=document["healthy"])


def inventory(services: Services, machines: Machines, *, every: bool) -> Answer:
    """Return the machines as ``nodes`` shows them."""
    from ...cluster.doctor.fleet_lines import node_lines
    from ...cluster.doctor.inventory_lines import nodes_document

    if machines.address is None:
        reports = services.reports(machines)
        return Answer(list(node_lines(reports, every=every)), nodes_document(reports))
    found = services.list_nodes(machines.address)
    reports, listed = [report for report, _ in found], [node for _, node in found]
    return Answer(list(node_lines(reports, listed, every=every)), nodes_document(reports, listed))


def _device_list(services: Services, machines: Machines, part: str, *, every: bool) -> Answer:
    from ...cluster.doctor.inventory_lines import device_lines, devices_document, mig_lines
    from ...cluster.doctor.vgpu_lines import vgpu_lines

    reports = services.reports(machines)
    special = {"vgpu": vgpu_lines, "mig": mig_lines}.get(part)
    lines = device_lines(reports, every=every) if special is None else special(reports)
    return Answer(list(lines), devices_document(reports, part))
