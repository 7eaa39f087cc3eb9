"""The manifests against KubeRay's schemas, its operator's rules, Ray's autoscaler and Kubernetes' strictest policy."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from codecfleet.cli.app import parse
from codecfleet.cli.commands.node import KeepNode
from codecfleet.cluster.autoscale.config import load_autoscale
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings

Manifest = dict[str, Any]
Render = Callable[[str], list[Manifest]]
LAYERS = ("base", "jobs", *(f"overlays/{each}" for each in ("autoscaled", "cpu", "fault-tolerant", "one-off", "queue")))
GROUP = "codecfleet/group"
VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim"}


def strict(schema: Any) -> Any:
    """Return a schema by which fields that it does not name are errors, as for ``kubectl --validate=strict``."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    if made.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
        made.pop("anyOf", None)
    if "properties" in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def faults(document: Any, schema: Manifest) -> list[str]:
    """Return what is wrong with a document by its schema."""
    found = jsonschema.Draft7Validator(schema).iter_errors(document)
    return [f"{'/'.join(map(str, each.path))}: {each.message[:200]}" for each in found]


@pytest.fixture(scope="session")
def schemas(kuberay_schemas: dict[str, Manifest]) -> dict[str, Manifest]:
    """KubeRay's schemas, strict; metadata is Kubernetes' own."""
    made = {kind: strict(schema) for kind, schema in kuberay_schemas.items()}
    for schema in made.values():
        schema["properties"]["metadata"] = {"type": "object"}
    return made


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of a kind."""
    return [each for each in manifests if each["kind"] == kind]


def clusters(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Yield the specification of each cluster, also of a cluster that a job starts for itself."""
    yield from (each["spec"] for each in of_kind(manifests, "RayCluster"))
    jobs = [each["spec"] for each in of_kind(manifests, "RayJob")]
    yield from (job["rayClusterSpec"] for job in jobs if "rayClusterSpec" in job)


def groups(cluster: Manifest) -> list[Manifest]:
    """Return the head's group and the workers'."""
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pod_templates(manifests: list[Manifest]) -> Iterator[Manifest]:
    """Yield every template of a pod."""
    yield from (group["template"] for cluster in clusters(manifests) for group in groups(cluster))
    yield from (job["spec"]["submitterPodTemplate"] for job in of_kind(manifests, "RayJob"))
    yield from (job["spec"]["jobTemplate"]["spec"]["template"] for job in of_kind(manifests, "CronJob"))


def clusters_labels(cluster: Manifest) -> set[tuple[str, str]]:
    """Return the labels that all pods of a cluster have."""
    return set.intersection(*(set(group["template"]["metadata"]["labels"].items()) for group in groups(cluster)))


def derived(cluster: Manifest) -> dict[str, Manifest]:
    """Return what Ray's autoscaler derives for each group: resources, labels and limits."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    resource = {"metadata": {"name": "codecfleet", "namespace": "codecfleet"}, "spec": cluster}
    types: dict[str, Manifest] = _derive_autoscaling_config_from_ray_cr(resource)["available_node_types"]
    return types


@pytest.mark.parametrize("layer", LAYERS)
def test_manifests_fit_the_schemas_of_kuberay(layer: str, rendered: Render, schemas: dict[str, Manifest]) -> None:
    """No field is unknown, none is missing, none has a wrong type."""
    manifests = rendered(layer)
    for each in manifests:
        if each["apiVersion"].startswith("ray.io/"):
            assert faults(each, schemas[each["kind"]]) == []
    pod = schemas["RayJob"]["properties"]["spec"]["properties"]["submitterPodTemplate"]
    for template in pod_templates(manifests):
        assert faults(template, pod) == []


@pytest.mark.parametrize("layer", LAYERS)
def test_clusters_pass_the_rules_of_kuberays_operator(layer: str, rendered: Render) -> None:
    """Beyond the schemas: resources and labels are stated once per group, and pods are not restarted in place."""
    for cluster in clusters(rendered(layer)):
        assert cluster["authOptions"] == {"mode": "token", "secretName": "codecfleet-token"}
        assert tuple(map(int, cluster["rayVersion"].split(".")[:2])) >= (2, 60)
        assert cluster["autoscalerOptions"]["version"] == "v2"
        for group in groups(cluster):
            assert not {"num-cpus", "num-gpus", "memory", "resources", "labels"} & set(group["rayStartParams"])
            assert "restartPolicy" not in group["template"]["spec"]
        head = cluster["headGroupSpec"]
        names = {variable["name"] for variable in head["template"]["spec"]["containers"][0].get("env", [])}
        assert not names & {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "RAY_enable_autoscaler_v2"}
    for job in of_kind(rendered(layer), "RayJob"):
        assert ("clusterSelector" in job["spec"]) != ("rayClusterSpec" in job["spec"])


def test_the_autoscaler_sees_what_each_group_has(rendered: Render) -> None:
    """Ray derives the resources and labels that each group states; nodes with GPUs run only when asked for."""
    (cluster,) = clusters(rendered("base"))
    types = derived(cluster)
    for group in cluster["workerGroupSpecs"]:
        seen = types[group["groupName"]]
        assert {kind: seen["resources"].get(kind) for kind in group["resources"]} == {
            kind: int(count) for kind, count in group["resources"].items()
        }
        assert seen["labels"] == group["labels"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert {name for name, each in types.items() if each["min_workers"]} == {"cpu"}
    assert max(types, key=lambda name: types[name].get("priority", 0)) == "cpu"


@pytest.mark.parametrize("layer", LAYERS)
def test_groups_offer_the_processors_that_their_containers_have(layer: str, rendered: Render) -> None:
    """Ray counts what `codecfleet node env` finds in the container; the autoscaler counts what the group states."""
    for cluster in clusters(rendered(layer)):
        for group in cluster["workerGroupSpecs"]:
            (container,) = group["template"]["spec"]["containers"]
            limits = container["resources"]["limits"]
            assert group["resources"]["CPU"] == limits["cpu"]
            assert sum(int(limits[name]) for name in limits if name.startswith("nvidia.com/")) == int(
                group["resources"].get("GPU", 0)
            )


@pytest.mark.parametrize("layer", LAYERS)
def test_pods_are_confined(layer: str, rendered: Render) -> None:
    """Pods obey Kubernetes' policy `restricted`, and their root file system is read-only."""
    templates = list(pod_templates(rendered(layer)))
    assert templates
    for template in templates:
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 1000
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all(set(volume) - {"name"} <= VOLUMES for volume in spec["volumes"])
        for container in spec["containers"]:
            _check_confined(container["securityContext"])
            assert "tmp" in {mount["name"] for mount in container["volumeMounts"]}
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    for cluster in clusters(rendered(layer)):
        _check_confined(cluster["autoscalerOptions"]["securityContext"])
        assert all(each["template"]["spec"]["automountServiceAccountToken"] is False for each in groups(cluster)[1:])


def _check_confined(context: Manifest) -> None:
    assert context == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


@pytest.mark.parametrize("layer", LAYERS)
def test_a_node_may_drain_before_it_is_killed(layer: str, rendered: Render) -> None:
    """Kubernetes waits longer than Ray, which gives running segments their time after SIGTERM."""
    for cluster in clusters(rendered(layer)):
        for group in cluster["workerGroupSpecs"]:
            spec = group["template"]["spec"]
            environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
            drain_s = int(environment["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
            assert drain_s + 20 <= spec["terminationGracePeriodSeconds"]
            # With `exec`, Ray, or the node's own program, is process 1 and gets the signal.
            started = r"^(eval exec \"\$KUBERAY_GEN_RAY_START_CMD\"$|exec codecfleet node start --block )"
            assert re.search(started, spec["containers"][0]["args"][0], re.MULTILINE)


@pytest.mark.parametrize("layer", LAYERS)
def test_only_the_cluster_itself_and_submitters_get_in(layer: str, rendered: Render) -> None:
    """A node's network policy admits only the cluster, except at the ports of the job server and of metrics."""
    manifests = rendered(layer)
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "NetworkPolicy")}
    nodes = [group["template"] for cluster in clusters(manifests) for group in groups(cluster)]
    own = {"matchLabels": {"app.kubernetes.io/part-of": "codecfleet"}}
    assert bool(nodes) == bool(policies)
    for node in nodes:
        assert own["matchLabels"].items() <= node["metadata"]["labels"].items()
    for policy in policies.values():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy.get("ingress", []):
            ports = [each["port"] for each in rule.get("ports", [])]
            assert rule["from"] == [{"podSelector": own}] or ports in ([8265], [8080])
    for template in list(pod_templates(manifests))[len(nodes) :]:
        assert template["metadata"]["labels"] == {"codecfleet/submits": "yes"}


def test_pods_reach_their_own_cloud_identity_and_not_the_machines(rendered: Render) -> None:
    """Beside port 443 outside the metadata's addresses, only servers that know a pod's own identity are reached."""
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(rendered("base"), "NetworkPolicy")}
    rules = [rule for rule in policies["codecfleet-nodes"]["egress"] if "ipBlock" in rule["to"][0]]
    found = {rule["to"][0]["ipBlock"]["cidr"]: [each["port"] for each in rule["ports"]] for rule in rules}
    assert found == {"0.0.0.0/0": [443], "169.254.170.23/32": [80], "169.254.169.252/32": [988]}
    assert rules[0]["to"][0]["ipBlock"]["except"] == ["169.254.0.0/16"]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_head_comes_before_workers(layer: str, rendered: Render) -> None:
    """Each pod of a cluster has its priority, and a budget selects it; a lone worker has none, to be movable."""
    manifests = rendered(layer)
    values = {each["metadata"]["name"]: each["value"] for each in of_kind(manifests, "PriorityClass")}
    budgets = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "PodDisruptionBudget")}
    for cluster in clusters(manifests):
        head, *workers = [group["template"]["spec"]["priorityClassName"] for group in groups(cluster)]
        assert values[head] == 0 > values[workers[0]] >= -10
        assert set(workers) == {workers[0]}
        assert budgets.keys() == ({head} if layer == "overlays/cpu" else {head, workers[0]})
        for budget in budgets.values():
            # Without the subresource `scale`, which a RayCluster lacks, Kubernetes takes nothing but a number here.
            assert budget["minAvailable"] == 1
            assert clusters_labels(cluster) <= budget["selector"]["matchLabels"].items()


def test_prometheus_operator_reads_every_pod(rendered: Render) -> None:
    """The monitor selects the pods of every cluster, and the port on which each serves its metrics."""
    (monitor,) = of_kind(rendered("monitoring"), "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for layer in LAYERS:
        for cluster in clusters(rendered(layer)):
            assert monitor["spec"]["selector"]["matchLabels"].items() <= clusters_labels(cluster)
            for group in groups(cluster):
                ports = {each["name"]: each["containerPort"] for each in _main_container(group)["ports"]}
                assert ports[endpoint["port"]] == 8080


def _main_container(group: Manifest) -> Manifest:
    container: Manifest = group["template"]["spec"]["containers"][0]
    return container


def test_the_jobs_are_commands_that_codecfleet_has(rendered: Render) -> None:
    """The parser accepts each job's batch, whose states are on the volume that outlives the head's pod."""
    manifests = rendered("jobs")
    (job,) = of_kind(manifests, "RayJob")
    (nightly,) = of_kind(manifests, "CronJob")
    program, *batch = shlex.split(job["spec"]["entrypoint"])
    assert program == "codecfleet"
    submit = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    for words in (batch, submit):
        assert not isinstance(parse(words), int)
        assert any("/work/" in word for word in words)
    assert nightly["spec"]["concurrencyPolicy"] == "Forbid"


def test_secrets_are_named_and_never_written_down(rendered: Render) -> None:
    """No manifest holds a Secret or a value that looks like one: manifests refer to secrets by name."""
    for layer in LAYERS:
        manifests = rendered(layer)
        assert of_kind(manifests, "Secret") == []
        for template in pod_templates(manifests):
            for variable in template["spec"]["containers"][0].get("env", []):
                assert not ("value" in variable and re.search("TOKEN$|PASSWORD|SECRET", variable["name"]))


def test_the_redis_of_the_fault_tolerant_layer_is_reached_and_has_a_password(rendered: Render) -> None:
    """The head keeps its state in Redis, and the head's network policy lets it connect."""
    manifests = rendered("overlays/fault-tolerant")
    (cluster,) = clusters(manifests)
    options = cluster["gcsFaultToleranceOptions"]
    host, port = options["redisAddress"].split(":")
    assert "secretKeyRef" in options["redisPassword"]["valueFrom"]
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "NetworkPolicy")}
    (rule,) = [each for each in policies["codecfleet-head"]["egress"] if "to" in each]
    (peer,) = rule["to"]
    assert peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == host.split(".")[1]
    assert rule["ports"] == [{"port": int(port)}]


def test_the_queue_layer_runs_drivers_on_cpu_nodes_alone(rendered: Render) -> None:
    """Such a node is the base's in its address, ports, labels and drain; the database's address comes from a Secret."""
    manifests = rendered("overlays/queue")
    (cluster,) = clusters(manifests)
    texts = {group.get("groupName", "head"): str(group) for group in groups(cluster)}
    assert [name for name, text in texts.items() if "--jobs-at-once" in text] == ["cpu"]
    (group,) = [each for each in cluster["workerGroupSpecs"] if each["groupName"] == "cpu"]
    (container,) = group["template"]["spec"]["containers"]
    program, *words = shlex.split(container["args"][0].partition("exec ")[2].replace("\\\n", ""))
    node = parse(words)
    assert isinstance(node, KeepNode)
    assert program == "codecfleet"
    assert node.options.address == "codecfleet-head-svc:6379"
    variables = {each["name"]: each for each in container["env"]}
    assert variables["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"]["value"] == str(node.options.drain_s)
    assert node.options.rest[1] == str(container["ports"][0]["containerPort"])
    assert node.options.rest[3] == str(container["livenessProbe"]["httpGet"]["port"])
    assert dict(node.offered.labels) == {GROUP: group["labels"][GROUP]}
    assert set(variables["CODECFLEET_QUEUE"]["valueFrom"]) == {"secretKeyRef"}
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "NetworkPolicy")}
    assert [{"port": 5432}] in [rule.get("ports") for rule in policies["codecfleet-nodes"]["egress"]]


def test_a_new_head_may_come_before_workers_give_up(rendered: Render) -> None:
    """Workers wait for a supervisor longer than the old head takes to end and a new one, by half a minute, to start."""
    (cluster,) = clusters(rendered("overlays/fault-tolerant"))
    grace_s = cluster["headGroupSpec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s + 30 < SupervisorSettings().fence_s


def test_the_layers_differ_as_they_say(rendered: Render) -> None:
    """One layer has no GPUs; another has only a job, with its own cluster, which equals the base's."""
    (base,) = clusters(rendered("base"))
    (small,) = clusters(rendered("overlays/cpu"))
    assert [group["groupName"] for group in small["workerGroupSpecs"]] == ["cpu"]
    one_off = rendered("overlays/one-off")
    assert [of_kind(one_off, kind) for kind in ("RayCluster", "CronJob")] == [[], []]
    (job,) = of_kind(one_off, "RayJob")
    assert job["spec"]["rayClusterSpec"] == base
    assert job["spec"]["shutdownAfterJobFinishes"] is True


def test_the_autoscaled_layer_has_no_workers_until_they_are_asked_for(rendered: Render, deploy: Path) -> None:
    """Codecfleet's groups match the autoscaler's, and none may have more nodes."""
    manifests = rendered("overlays/autoscaled")
    (cluster,) = clusters(manifests)
    config = load_autoscale(deploy / "kubernetes" / "overlays" / "autoscaled" / "autoscale.toml")
    workers = {name: each for name, each in derived(cluster).items() if name != "headgroup"}
    assert all(each["min_workers"] == 0 for each in workers.values())
    assert {group.name: (group.labels, group.resources, group.nodes_max) for group in config.groups} == {
        name: (
            {GROUP: each["labels"][GROUP]},
            {kind: each["resources"][kind] for kind in ("CPU", "GPU") if kind in each["resources"]},
            each["max_workers"],
        )
        for name, each in workers.items()
    }
    (stored,) = of_kind(manifests, "ConfigMap")
    (container,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    folder, _, file = variable["value"].rpartition("/")
    assert (variable["name"], list(stored["data"])) == ("CODECFLEET_AUTOSCALE", [file])
    assert {"name": "autoscale", "mountPath": folder} in container["volumeMounts"]
    volumes = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert {"name": "autoscale", "configMap": {"name": stored["metadata"]["name"]}} in volumes
