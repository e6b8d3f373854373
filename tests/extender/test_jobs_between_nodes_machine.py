"""Jobs of any kinds come and go; what the scheduler could place is bound in time.

A brute-force search over the scheduler's rules says whether a job can be placed beside
what runs. If its demands can be read, it is then bound at the first gate; if something
else keeps its pods apart or off a node, within three gates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sandbox.apiclient import Object
from tests.extender import scheduler_rules as rules
from tests.extender.gangworld import GangWorld, can_place, sim_node, sim_pod
from tests.support.caches import node_states, reservations
from tests.support.examples import examples

NAMES = ("n1", "n2", "n3", "n4")
ROLES = ("lead", "work")
ZONE = "topology.kubernetes.io/zone"
#: Seconds: three gates, and the pauses between them.
THREE_GATES_S = 3 * 20 + 15


@st.composite
def demands(draw: st.DrawFn, job: str, role: str) -> dict[str, Any]:
    """Demands of one kind of member that the extender reads."""
    whom = draw(st.sampled_from([{"job": job}, {"job": job, "role": role}]))
    spec: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {},
                {"port": 2222},
                {"affinity": {"podAntiAffinity": rules.term(whom)}},
                {"affinity": {"podAffinity": rules.term({"job": job, "role": role})}},
                {"topologySpreadConstraints": [rules.spread(whom)]},
                {"topologySpreadConstraints": [rules.spread(whom, skew=2)]},
            ]
        )
    )
    pool = draw(st.sampled_from(["", "", "a", "b"]))
    if pool:
        spec = {**spec, "nodeSelector": {"pool": pool}}
    if draw(st.booleans()):
        spec = {**spec, "tolerations": [{"key": "k", "operator": "Exists"}]}
    return spec


@st.composite
def jobs(draw: st.DrawFn, job: str) -> list[Object]:
    """The pods of a job: one or two kinds, all of them with as many chips."""
    npus = draw(st.sampled_from([1, 2, 4, 8]))
    total = draw(st.integers(2, 4))
    specs = {role: draw(demands(job, role)) for role in ROLES}
    if draw(st.integers(0, 5)) == 0:
        beside_others(specs, job, *draw(st.permutations(ROLES)))
    leads = draw(st.integers(0, total))
    return [
        sim_pod(
            f"{job}-{number}",
            job=job,
            size=total,
            npus=npus,
            role=ROLES[number >= leads],
            **specs[ROLES[number >= leads]],
        )
        for number in range(total)
    ]


def beside_others(
    specs: dict[str, dict[str, Any]], job: str, role: str, other: str
) -> None:
    """Let pods of a role be on nodes with the other, which they may have as well."""
    specs[role] = {
        key: value
        for key, value in specs[other].items()
        if key in {"nodeSelector", "tolerations"}
    }
    near = rules.term({"job": job, "role": other})
    specs[role]["affinity"] = {"podAffinity": near}


def awaits_others(pods: list[Object]) -> bool:
    """Whether a pod is offered no node before one of another role has one."""
    return any(
        each["labelSelector"]["matchLabels"].get("role", role) != role
        for pod in pods
        for role in [pod["metadata"]["labels"]["role"]]
        for affinity in [pod["spec"].get("affinity", {}).get("podAffinity", {})]
        for terms in affinity.values()
        for each in terms
    )


def keep_zones_apart(pods: list[Object], job: str, role: str) -> None:
    """Let pods of a role share no zone."""
    whom = {"job": job, "role": role}
    for pod in pods:
        affinity = pod["spec"].setdefault("affinity", {})
        if pod["metadata"]["labels"]["role"] == role:
            affinity.setdefault("podAntiAffinity", rules.term(whom, ZONE))


def set_roles_apart(pods: list[Object]) -> None:
    """Let pods of two roles be of two kinds."""
    for pod in pods:
        tolerated = {"key": pod["metadata"]["labels"]["role"], "operator": "Exists"}
        before = pod["spec"].get("tolerations", [])
        pod["spec"]["tolerations"] = [*before, tolerated]


@dataclass
class Job:
    pods: list[Object]

    @property
    def names(self) -> list[str]:
        return rules.names_of(self.pods)


class JobsBetweenNodes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.jobs: dict[str, Job] = {}
        self.world: GangWorld | None = None

    @precondition(lambda self: self.world is None)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Two to four nodes, in pools and zones, some of them tainted."""
        names = NAMES[: data.draw(st.integers(2, 4), "nodes")]
        labels = st.sampled_from("ab")
        nodes = [
            sim_node(
                name,
                data.draw(st.sampled_from(["", "", "k"]), "taint"),
                pool=data.draw(labels, "pool"),
                **{ZONE: data.draw(labels, "zone")},
            )
            for name in names
        ]
        is_patient = data.draw(st.booleans(), "is_patient")
        self.world = GangWorld(nodes, is_patient=is_patient)

    @precondition(lambda self: self.world is not None and len(self.jobs) < 2)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        """A job comes; perhaps something that nobody reads keeps its pods apart."""
        world = self.known_world
        self.number += 1
        job = f"j{self.number}"
        pods = data.draw(jobs(job), "job")
        hidden = data.draw(st.sampled_from(["", "", "zones", "node"]), "hidden")
        late = world.is_patient and awaits_others(pods)  # not asked before one is bound
        if awaits_others(pods):
            hidden = ""  # they are asked about on one node at a time: it may take long
        role = data.draw(st.sampled_from(ROLES), "role")
        world.refused = set()
        if hidden == "zones":
            keep_zones_apart(pods, job, role)
        elif hidden == "node":
            bad = data.draw(st.sampled_from(sorted(world.nodes)), "bad")
            world.refused = {(role, bad)}
            set_roles_apart(pods)
        order = data.draw(st.permutations(rules.names_of(pods)), "order")
        nodes = st.sampled_from(sorted(world.nodes))
        world.nominated = data.draw(
            st.dictionaries(st.sampled_from(order), nodes, max_size=1), "nominated"
        )
        gated = data.draw(st.sampled_from([0, 0, 0, 1, len(pods)]), "gated")
        self.run(
            job,
            pods,
            order,
            limit_s=THREE_GATES_S if hidden or late else 4,
            gated=order[:gated],
        )

    def run(
        self,
        job: str,
        pods: list[Object],
        order: list[str],
        *,
        limit_s: int,
        gated: Sequence[str],
    ) -> None:
        """Wait until a job is bound; one that cannot be placed is given up.

        Args:
            gated: Names of pods that come behind a scheduling gate. As long as there
                are any, nothing of the job is bound or reserved.
        """
        world = self.known_world
        self.jobs[job] = Job(pods)
        names = self.jobs[job].names
        fits = can_place(pods, world.nodes, world.placed, self.free, world.refused)
        note(f"{job} can be placed: {fits}")
        gates = [{"name": "example.com/wait"}]
        for pod in pods:
            is_gated = pod["metadata"]["name"] in gated
            spec = {"schedulingGates": gates} if is_gated else {}
            world.add({**pod, "spec": {**pod["spec"], **spec}})
        if gated:
            assert world.run(3, *names) is None
            assert not world.bound.keys() & set(names)
            assert all(f"uid-{name}" not in reservations(world.cache) for name in names)
            world.lift_gates(*gated)
        took = world.run(limit_s if fits else 30, *names, order=order)
        assert took is not None or not fits
        if took is None:
            self.end(job)

    @property
    def known_world(self) -> GangWorld:
        assert self.world is not None
        return self.world

    @property
    def free(self) -> dict[str, int]:
        """{node: mask of its free chips}."""
        world = self.known_world
        return {name: node_states(world.cache)[name].free for name in world.nodes}

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.jobs))))

    def end(self, job: str) -> None:
        self.known_world.delete(*self.jobs.pop(job).names)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def make_a_pod_again(self, data: st.DataObject) -> None:
        """A pod of a running job fails, and its controller makes it anew."""
        world = self.known_world
        world.refused = set()
        job = self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]
        pod = data.draw(st.sampled_from(job.pods))
        name = pod["metadata"]["name"]
        world.delete(name)
        fits = can_place([pod], world.nodes, world.placed, self.free, world.refused)
        world.add(pod)
        took = world.run(4, name)
        assert took is not None or not fits
        if took is None:
            self.end(pod["metadata"]["labels"]["job"])

    @invariant()
    def nothing_is_bound_in_part(self) -> None:
        for job in self.jobs.values():
            assert {*job.names} <= self.known_world.bound.keys()

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()


@examples(25, pytest.param(100, marks=pytest.mark.long), variable="GANG_EXAMPLES")
def test_what_could_be_placed_is_bound_in_time(examples: int) -> None:
    run_state_machine_as_test(
        JobsBetweenNodes,
        settings=settings(
            max_examples=examples,
            stateful_step_count=5,
            suppress_health_check=list(HealthCheck),
        ),
    )
