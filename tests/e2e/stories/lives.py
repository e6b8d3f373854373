"""Lives of pods, read from what the API server told of them.

Pure: a history is what watches brought, in their order, each with its time.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox.apiclient import Object
from scheduler_core.products.table import PRODUCTS

NEVER = math.inf
#: Beside a node's labels: the resource of its chips.
OFFERS = "offers"
LWS = "leaderworkerset.sigs.k8s.io"
JOBSET = "jobset.sigs.k8s.io"
RAY = "ray.io"
TRAINING = "training.kubeflow.org"
_BATCH = "batch.kubernetes.io"
_LEAST = "huawei.com/schedule_minAvailable"
_INDEX = f"{_BATCH}/job-completion-index"
_TERMINAL = ("Succeeded", "Failed")
_RESOURCES = frozenset(product.resource for product in PRODUCTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of a watch."""

    at_s: float
    item: Object
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What became of one pod; each time is `NEVER` until it is so."""

    name: str
    uid: str = ""
    #: kind and name of the job; a group of a LeaderWorkerSet is one
    job: str
    #: pods of one making of the job have it in common
    generation: str
    #: which part of the job the pod has; "" where pods have none
    rank: str = ""
    #: pods that the job is to have
    size: int
    #: pods that must be bound at once
    least: int
    #: labels that its node must have, and what it must offer
    selector: Mapping[str, str]
    #: what has a domain of nodes to itself; "" for none
    unit: str = ""
    #: pods of the unit
    unit_size: int = 0
    #: label of nodes of which each domain has one value
    domain: str = ""
    created_s: float
    #: since when no gate keeps it
    ungated_s: float
    bound_s: float = NEVER
    node: str = ""
    chips: frozenset[str] = frozenset()
    #: whether a condition said, before it was gone, that it is no failure of its own
    is_disrupted: bool = False
    #: when it was deleted
    leaves_s: float = NEVER
    #: when it was gone, or its containers had ended for good
    ended_s: float = NEVER

    def waits(self, at_s: float) -> bool:
        """Whether it is there and has no node."""
        is_there = self.ungated_s <= at_s < min(self.leaves_s, self.ended_s)
        return is_there and at_s < self.bound_s

    def holds(self, at_s: float) -> bool:
        """Whether it has its node."""
        return self.bound_s <= at_s < self.ended_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Which job a pod is of."""

    name: str
    #: what all pods of one making have in common, but for a break
    key: str
    rank: str
    size: int
    least: int
    unit: str = ""
    unit_size: int = 0
    domain: str = ""


def read(history: Sequence[Told]) -> list[Life]:
    """Return the lives of all pods with NPUs, in the order of their creation."""
    # An owner's event may come behind the first one of its pod.
    objects = {each.item["metadata"]["uid"]: each.item for each in reversed(history)}
    lives: dict[str, Life] = {}
    for each in history:
        if each.item["kind"] != "Pod":
            objects[each.item["metadata"]["uid"]] = each.item
        else:
            uid = each.item["metadata"]["uid"]
            life = lives.get(uid) or _begin(each, objects)
            if life is not None:
                lives[uid] = _go_on(life, each)
    return _with_breaks(list(lives.values()))


def _begin(told: Told, objects: Mapping[str, Object]) -> Life | None:
    resource = _resource(told.item)
    if not resource:
        return None
    job = _job(told.item, objects)
    selector = told.item["spec"].get("nodeSelector") or {}
    return Life(
        name=told.item["metadata"]["name"],
        uid=told.item["metadata"]["uid"],
        job=job.name,
        generation=job.key,
        rank=job.rank,
        size=job.size,
        least=job.least,
        unit=job.unit,
        unit_size=job.unit_size,
        domain=job.domain,
        selector={**selector, OFFERS: resource},
        created_s=told.at_s,
        ungated_s=NEVER,
    )


def _go_on(life: Life, told: Told) -> Life:
    pod, at_s = told.item, told.at_s
    changes: dict[str, float | str | frozenset[str]] = {}
    if life.ungated_s == NEVER and not pod["spec"].get("schedulingGates"):
        changes["ungated_s"] = at_s
    if life.bound_s == NEVER and pod["spec"].get("nodeName"):
        changes |= {"bound_s": at_s, "node": pod["spec"]["nodeName"]}
    claim = (pod["metadata"].get("annotations") or {}).get(life.selector[OFFERS])
    if claim:
        changes["chips"] = frozenset(claim.split(","))
    conditions = pod["status"].get("conditions") or ()
    if any(each["type"] == "DisruptionTarget" for each in conditions):
        changes["is_disrupted"] = True
    if life.leaves_s == NEVER and "deletionTimestamp" in pod["metadata"]:
        changes["leaves_s"] = at_s
    has_ended = told.is_gone or pod["status"].get("phase") in _TERMINAL
    if life.ended_s == NEVER and has_ended:
        changes["ended_s"] = at_s
    return replace(life, **changes) if changes else life  # type: ignore[arg-type]


def _with_breaks(lives: Iterable[Life]) -> list[Life]:
    """Tell makings of one object apart: a new one begins where no pod is left.

    A Job that was suspended and resumed keeps its UID.
    """
    found: list[Life] = []
    numbers: dict[str, int] = {}
    for life in lives:
        begun_s, key = life.created_s, life.generation
        name = f"{key}#{numbers.setdefault(key, 0)}"
        before = [each for each in found if each.generation == name]
        if before and all(_is_over(each, begun_s) for each in before):
            numbers[key] += 1
        found.append(replace(life, generation=f"{key}#{numbers[key]}"))
    return found


def _is_over(life: Life, at_s: float) -> bool:
    return min(life.leaves_s, life.ended_s) <= at_s


def _resource(pod: Object) -> str:
    """Return the resource of the NPUs that a pod asks for; "" if it asks for none."""
    asked = (
        name
        for each in pod["spec"]["containers"]
        for name in each.get("resources", {}).get("limits") or {}
    )
    return next((name for name in asked if name in _RESOURCES), "")


def _job(pod: Object, objects: Mapping[str, Object]) -> _Job:
    """Return the job of a pod."""
    labels = pod["metadata"].get("labels") or {}
    for label, of_kind in _BY_LABEL.items():
        if label in labels:
            return of_kind(pod, labels, objects)
    if _LEAST in (pod["metadata"].get("annotations") or {}):
        return _of_least(pod, objects)
    return _of_job(pod, labels, objects)


def _of_worker_set(
    pod: Object, labels: Mapping[str, str], objects: Mapping[str, Object]
) -> _Job:
    name, group = labels[f"{LWS}/name"], labels[f"{LWS}/group-index"]
    rank = labels[f"{LWS}/worker-index"]
    notes = pod["metadata"]["annotations"]
    size = int(notes[f"{LWS}/size"])
    # Workers belong to a StatefulSet, and that to their leader.
    leader = pod["metadata"]["uid"]
    if rank != "0":
        leader = _owner_uid(objects.get(_owner_uid(pod), {}))
    return _Job(
        name=f"LeaderWorkerSet {name}/{group}",
        key=leader,
        rank=rank,
        size=size,
        least=size,
        unit=leader,
        unit_size=size,
        domain=notes.get(f"{LWS}/exclusive-topology", ""),
    )


def _of_job_set(
    pod: Object, labels: Mapping[str, str], objects: Mapping[str, Object]
) -> _Job:
    uid = labels[f"{JOBSET}/jobset-uid"]
    attempt = labels[f"{JOBSET}/restart-attempt"]
    replicated, index = (
        labels[f"{JOBSET}/replicatedjob-name"],
        labels[f"{JOBSET}/job-index"],
    )
    notes = pod["metadata"]["annotations"]
    jobs = objects[uid]["spec"]["replicatedJobs"]
    sizes = {each["name"]: _parallel(each["template"]) for each in jobs}
    size = sum(each["replicas"] * sizes[each["name"]] for each in jobs)
    return _Job(
        name=f"JobSet {labels[f'{JOBSET}/jobset-name']}",
        key=f"{uid}/{attempt}",
        rank=f"{replicated}/{index}/{notes[_INDEX]}",
        size=size,
        least=size,
        unit=f"{uid}/{attempt}/{replicated}/{index}",
        unit_size=sizes[replicated],
        domain=notes.get(f"alpha.{JOBSET}/exclusive-topology", ""),
    )


def _of_ray_cluster(
    pod: Object, labels: Mapping[str, str], objects: Mapping[str, Object]
) -> _Job:
    owner = objects[_owner_uid(pod)]
    groups = owner["spec"].get("workerGroupSpecs", ())
    workers = sum(int(e["replicas"]) * int(e.get("numOfHosts", 1)) for e in groups)
    rank = "head"
    if labels[f"{RAY}/node-type"] != rank:
        replica = labels[f"{RAY}/worker-group-replica-index"]
        host = labels.get(f"{RAY}/replica-host-index", "0")
        rank = f"{labels[f'{RAY}/group']}/{replica}/{host}"
    return _whole(owner, rank, 1 + workers)


def _of_training_job(
    pod: Object, labels: Mapping[str, str], objects: Mapping[str, Object]
) -> _Job:
    owner = objects[_owner_uid(pod)]
    roles = owner["spec"]["pytorchReplicaSpecs"].values()
    index = labels[f"{TRAINING}/replica-index"]
    rank = f"{labels[f'{TRAINING}/replica-type']}/{index}"
    return _whole(owner, rank, sum(int(each["replicas"]) for each in roles))


def _whole(owner: Object, rank: str, size: int) -> _Job:
    """Return the job of an object, all pods of which must be bound at once."""
    return _Job(
        name=f"{owner['kind']} {owner['metadata']['name']}",
        key=owner["metadata"]["uid"],
        rank=rank,
        size=size,
        least=size,
    )


def _of_job(
    pod: Object, labels: Mapping[str, str], objects: Mapping[str, Object]
) -> _Job:
    owner = objects.get(_owner_uid(pod))
    if owner is None:  # made by a person
        uid = pod["metadata"]["uid"]
        name = f"Pod {pod['metadata']['name']}"
        return _Job(name=name, key=uid, rank="", size=1, least=1)
    return _whole(owner, labels[_INDEX], _parallel(owner))


def _of_least(pod: Object, objects: Mapping[str, Object]) -> _Job:
    owner = objects[_owner_uid(pod)]
    if owner["kind"] == "ReplicaSet":
        owner = objects[_owner_uid(owner)]
    return _Job(
        name=f"{owner['kind']} {owner['metadata']['name']}",
        key=owner["metadata"]["uid"],
        rank="",
        size=owner["spec"]["replicas"],
        least=int(pod["metadata"]["annotations"][_LEAST]),
    )


def _parallel(job: Object) -> int:
    spec = job["spec"]
    return min(int(spec["parallelism"]), int(spec["completions"]))


def _owner_uid(item: Object) -> str:
    owners = item.get("metadata", {}).get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), "")


_OfKind = Callable[[Object, Mapping[str, str], Mapping[str, Object]], _Job]
#: {label: which job a pod with it is of}; the first that a pod has
_BY_LABEL: Mapping[str, _OfKind] = {
    f"{LWS}/name": _of_worker_set,
    f"{JOBSET}/jobset-name": _of_job_set,
    f"{RAY}/cluster": _of_ray_cluster,
    f"{TRAINING}/job-name": _of_training_job,
}
