"""All pods of a job get servers of one kind: in filter, plan, explain and what-if (D2).

Figures are those of a gang of four pods with eight chips each: an Atlas A3 server has
room for two of them, an A2 for one.
"""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cache.cache import Cache
from extender.gang.size import Size
from extender.planning import plan
from extender.planning.plan_input import PLAIN
from extender.planning.reservation import choose_nodes
from extender.planning.topology import NetworkTopology, Rules
from extender.preemption import victims
from extender.queries import snapshot
from extender.refusals import Refusal
from scheduler_core.node.chips import mask_of
from scheduler_core.node.decision import JobPlacement, Rejection
from scheduler_core.products import table
from scheduler_core.products.lookup import Traits
from scheduler_core.snapshot import questions
from scheduler_core.snapshot.job import Job
from scheduler_core.snapshot.questions import Case
from tests.extender.kube_scheduler.test_verbs import served
from tests.extender.planning.test_followers import a_worker_set, job_world, of_group
from tests.support import objects
from tests.support.caches import add_node, apply, empty, only_gang, planned
from tests.support.extender import world
from tests.support.watched import JOB_PATH, RESOURCE, Line, leaves, living, member, task

SIZE = 4
NAMES = ("w0", "w1", "w2", "w3")
MIXED = dict.fromkeys(("b0", "b1"), "atlas-a2-8") | dict.fromkeys(
    ("a0", "a1"), "atlas-a3-16"
)
OTHER = "it needs atlas-a3-16, and what is offered is atlas-a2-8"
REFUSED = (
    "a job gets servers of one kind; Atlas A2 server with 8 chips: {} of 4 pods fit; "
    "Atlas A3 server with 16 chips: {} of 4 pods fit"
)


ONLY_TWO = "no 3 nodes under leaf switches can take a pod: there are 2 such nodes"
NO_BLOCK = (
    "0 of 1 logical SuperPoDs of 3 nodes fit: the freest SuperPoD then has 2 that can "
    "take a pod"
)


def mixed(*, a2: int = 0, a3: int = 0) -> Cache:
    """A cluster of so many servers of each kind: b0, b1 … and a0, a1 …"""
    cache = empty()
    for number in range(a3):
        add_node(cache, f"a{number}", table.by_key("atlas-a3-16"))
    for number in range(a2):
        add_node(cache, f"b{number}", table.by_key("atlas-a2-8"))
    return cache


def gang(cache: Cache, **parts: Any) -> None:
    apply(cache, *(member(name, size=SIZE, **parts) for name in NAMES))


def policy(value: str) -> Traits:
    return Traits(annotations={"huawei.com/schedule_policy": value})


def outcome(cache: Cache) -> dict[str, tuple[str, str]] | str:
    """Where the plan has the job's pods and why; or why there is no plan."""
    made = plan.plan(cache, only_gang(cache), cache.index.names, 0)
    if isinstance(made, Refusal):
        return made.text
    return {str(each.kept_for): (each.node, each.text) for each in made}


def nodes(cache: Cache) -> list[str] | str:
    found = outcome(cache)
    return found if isinstance(found, str) else sorted(n for n, _ in found.values())


@pytest.mark.parametrize(
    ("a2", "a3", "expected"),
    [
        # of both kinds together there would be room
        (3, 1, REFUSED.format(3, 2)),
        (4, 1, ["b0", "b1", "b2", "b3"]),
        (3, 2, ["a0", "a0", "a1", "a1"]),
        # the fixed order: by the keys of rows
        (4, 2, ["b0", "b1", "b2", "b3"]),
    ],
)
def test_d2_a_job_goes_to_the_first_kind_on_which_it_fits_whole(
    a2: int, a3: int, expected: list[str] | str
) -> None:
    cache = mixed(a2=a2, a3=a3)
    gang(cache)

    assert nodes(cache) == expected


def test_d2_reasons_speak_of_the_servers_that_the_pods_get() -> None:
    a2, a3 = mixed(a2=4, a3=1), mixed(a2=3, a3=2)
    reasons = []
    for cache in (a2, a3):
        gang(cache)
        found = outcome(cache)
        assert not isinstance(found, str)
        reasons.append({text.partition(",")[0] for _, text in found.values()})

    assert reasons == [
        {"the last 8 free"},
        {"4 whole HiAM modules"},
    ]


@pytest.mark.parametrize(
    ("value", "a2", "a3", "expected"),
    [
        ("module-a3-16", 4, 2, ["a0", "a0", "a1", "a1"]),
        ("module-a3-16", 4, 1, "2 of 4 pods fit"),
        # no A3 is there, but no A2 is one
        ("module-a3-16", 4, 0, OTHER),
        ("chip8-node8", 4, 2, ["b0", "b1", "b2", "b3"]),
        # nothing but a policy means these rows: the job knows what its servers have
        ("chip4-node8", 4, 2, ["b0", "b1", "b2", "b3"]),
        ("chip1-node16", 3, 2, ["a0", "a0", "a1", "a1"]),
    ],
)
def test_d2_a_row_that_the_job_names_comes_first_and_others_only_if_they_may_be_it(
    value: str, a2: int, a3: int, expected: list[str] | str
) -> None:
    cache = mixed(a2=a2, a3=a3)
    gang(cache, traits=policy(value))

    assert nodes(cache) == expected


@pytest.mark.parametrize(("count", "kind"), [(7, "atlas-a2-8"), (16, "atlas-a3-16")])
def test_d2_a_kind_that_cannot_have_one_of_the_pods_gets_none(
    count: int, kind: str
) -> None:
    cache = mixed(a2=6, a3=6)
    gang(cache, count=2)
    apply(cache, member("w3", size=SIZE, count=count))

    made = plan.plan(cache, only_gang(cache), cache.index.names, 0)

    assert not isinstance(made, Refusal)
    states = cache.index.nodes(RESOURCE)
    assert {states[each.node].product.key for each in made} == {kind}


@pytest.mark.parametrize(
    ("where", "a2", "a3", "expected"),
    [
        ("a0", 4, 2, ["a0", "a1", "a1"]),
        ("b0", 4, 2, ["b1", "b2", "b3"]),
        ("a0", 4, 1, "1 of 3 pods fit"),
    ],
)
def test_d2_pods_that_come_later_get_the_kind_of_those_that_run(
    where: str, a2: int, a3: int, expected: list[str] | str
) -> None:
    cache = mixed(a2=a2, a3=a3)
    gang(cache)
    apply(cache, member("w1", size=SIZE, node=where, phase="Running"))

    assert nodes(cache) == expected


def test_d2_a_job_keeps_its_kind_when_none_of_it_is_offered() -> None:
    cache = mixed(a2=4, a3=1)
    gang(cache)
    apply(cache, member("w1", size=SIZE, node="a0", phase="Running"))

    made = plan.plan(cache, only_gang(cache), ["b0", "b1", "b2", "b3"], 0)

    assert isinstance(made, Refusal)
    assert made.text == OTHER


@pytest.mark.parametrize(("a2", "a3", "first"), [(3, 1, "b"), (1, 1, "a")])
async def test_d2_an_elastic_job_starts_and_grows_on_one_kind(
    a2: int, a3: int, first: str
) -> None:
    """As many pods as fit on one kind; two must run."""
    cache = mixed(a2=a2, a3=a3)
    names = cache.index.names
    async with world(cache) as w:
        w.calls.sizes[JOB_PATH] = Size(count=SIZE, least=2)
        w.add(*(task(number) for number in range(SIZE)))
        await w.tick()
        await w.tick(3)
        count = max(a2, 2 * a3)
        places = [w.filter(f"w{number}", names)[0] for number in range(count)]
        calls = [w.bind(f"w{at}", node) for at, node in enumerate(places)]
        assert await asyncio.gather(*calls) == [""] * count
        assert {node[0] for node in places} == {first}

        assert w.filter("w3", names) == []

        add_node(cache, "b9", table.by_key("atlas-a2-8"))
        add_node(cache, "a9", table.by_key("atlas-a3-16"))
        assert w.filter("w3", cache.index.names) == [f"{first}9"]


async def test_d2_pods_to_come_get_the_kind_of_their_leader() -> None:
    found = a_worker_set(startupPolicy="LeaderReady")
    async with job_world(found, of_group(0), nodes=()) as w:
        for name, key in MIXED.items():
            add_node(w.cache, name, table.by_key(key))

        (node,) = w.filter("w0", tuple(MIXED))
        assert await w.bind("w0", node) == ""

        kept = only_gang(w.cache).plan.followers.values()
        assert sorted([node, *kept]) == ["a0", "a0", "a1"]


def test_d2_under_leaf_switches_a_job_has_one_kind() -> None:
    cache = empty()
    ips = {name: f"10.0.0.{at}" for at, name in enumerate(MIXED)}
    for name, key in MIXED.items():
        add_node(cache, name, table.by_key(key), address=ips[name])
    apply(cache, leaves(tuple(ips.values())))
    labels = {"tor-affinity": "normal-schema"}
    apply(
        cache, *(member(name, size=3, traits=Traits(labels=labels)) for name in "xyz")
    )

    # under leaf switches each pod has a node by itself: three nodes, two of each kind
    assert planned(cache, tuple(MIXED), Rules()) == (
        "a job gets servers of one kind; "
        f"Atlas A2 server with 8 chips: {ONLY_TWO}; "
        f"Atlas A3 server with 16 chips: {ONLY_TWO}"
    )


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        (2, {"s0", "s1"}),
        (
            3,
            (
                "a job gets servers of one kind; Atlas A3 server with 16 chips in a "
                f"SuperPoD: {NO_BLOCK}; Atlas A3 server with 16 chips: {NO_BLOCK}"
            ),
        ),
    ],
)
def test_d2_a_job_of_superpods_has_one_kind(
    pods: int, expected: set[str] | str
) -> None:
    """Servers of the job's row come first, then such as may be it, never both."""
    cache = empty()
    rows = dict.fromkeys(("s0", "s1"), "atlas-a3-16-superpod")
    for name, key in {**rows, "a0": "atlas-a3-16", "a1": "atlas-a3-16"}.items():
        add_node(cache, name, table.by_key(key), superpod=0)
    traits = Traits(annotations={"sp-block": f"{16 * pods}"})
    for name in NAMES[:pods]:
        apply(cache, member(name, size=pods, count=16, traits=traits))

    found = planned(cache, tuple(cache.index.names), Rules())

    where = found if isinstance(found, str) else {node for node, _ in found.values()}
    assert where == expected


def test_d2_nodes_are_kept_for_a_job_on_one_kind_only() -> None:
    """The A3 has the fewest chips in use, and no part in the job's plan."""
    cache = mixed(a2=4, a3=1)
    a2 = Line(product=table.by_key("atlas-a2-8"))
    for number in range(4):
        apply(cache, living(f"x{number}", a2, (0,), where=f"b{number}"))
    gang(cache)

    kept = choose_nodes(cache, only_gang(cache), cache.index.names, PLAIN)

    assert kept == {"b0", "b1", "b2", "b3"}


def test_d2_room_is_made_for_a_job_on_one_kind() -> None:
    cache = mixed(a2=4, a3=1)
    a2 = Line(product=table.by_key("atlas-a2-8"))
    apply(cache, living("x", a2, (0,), where="b0"))
    gang(cache, priority=9)

    started = victims.for_job(cache, only_gang(cache), cache.index.names)

    assert started is not None
    assert [victim.name for victim in started.attempt.victims] == ["x"]
    assert sorted(started.chips) == ["b0", "b1", "b2", "b3"]


def pod_as_sent(name: str) -> dict[str, Any]:
    return objects.pod(name, limits={RESOURCE: "8"}, meta={"uid": f"uid-{name}"})


@pytest.mark.parametrize(("a2", "a3"), [(3, 1), (4, 1), (3, 2)])
async def test_d2_filter_plan_and_explain_give_one_answer(a2: int, a3: int) -> None:
    cache = mixed(a2=a2, a3=a3)
    gang(cache)
    names = cache.index.names
    question = {
        "version": 1,
        "job": {"resource": RESOURCE, "chips": 8, "pods": SIZE},
    }

    async with served(cache) as (extender, _):
        asked = json.dumps(question).encode()
        planned_for = await extender.post("v1/plan", asked)
        filtered = {
            name: await extender.filter(pod_as_sent(name), *names) for name in NAMES
        }
        explained = {name: (await extender.explain(name))[1] for name in NAMES}

    if planned_for["fits"]:
        places = sorted(place["node"] for place in planned_for["pods"])
        assert sorted(filtered[name]["NodeNames"][0] for name in NAMES) == places
        assert sorted(each["node"] for each in explained.values()) == places
        keys = {cache.index.nodes(RESOURCE)[name].product.key for name in places}
        assert len(keys) == 1
    else:
        assert planned_for["job_reason"] == REFUSED.format(a2, 2 * a3)
        text = f"its job does not fit: {planned_for['job_reason']}"
        for name in NAMES:
            assert filtered[name]["FailedAndUnresolvableNodes"] == dict.fromkeys(
                names, text
            )
            assert explained[name]["nodes"] == dict.fromkeys(names, text)


ROWS = ("atlas-800-training", "atlas-a2-8", "atlas-a2-box16", "atlas-a3-16", "mesh-8")
servers = st.lists(
    st.tuples(st.sampled_from(ROWS), st.sampled_from([0, 1, 2, 8])),
    min_size=1,
    max_size=5,
)
policies = st.sampled_from(["", "module-a3-16", "chip8-node8", "chip4-node8"])


@pytest.mark.property
@given(servers, st.integers(2, 5), st.sampled_from([1, 2, 4, 8, 16]), policies)
def test_d2_a_plan_is_what_the_file_says_and_has_one_kind(
    found: list[tuple[str, int]], pods: int, count: int, policy_value: str
) -> None:
    """Servers of any kinds, each with some chips taken."""
    cache = empty()
    for number, (key, taken) in enumerate(found):
        row = table.by_key(key)
        add_node(cache, f"n{number}", row)
        if taken:
            line = Line(product=row)
            apply(cache, living(f"x{number}", line, range(taken), where=f"n{number}"))
    traits = policy(policy_value) if policy_value else Traits()
    for number in range(pods):
        apply(cache, member(f"pod-{number}", size=pods, count=count, traits=traits))
    networks = NetworkTopology(cache, Rules())
    job = Job(resource=RESOURCE, chips=count, pods=pods, annotations=traits.annotations)

    case = Case(snapshot=snapshot.take(cache, networks), job=job)
    said = questions.decide(case)
    gang = only_gang(cache)
    topology = networks.snapshot(gang)
    made = plan.plan(cache, gang, cache.index.names, 0, topology)

    if isinstance(made, Refusal):
        assert isinstance(said, Rejection)
        assert made.text == (said.job or said.text)
        return
    assert isinstance(said, JobPlacement)
    assert [(each.node, each.chips) for each in made] == [
        (place.node, mask_of(place.chips)) for place in said.pods
    ]
    states = cache.index.nodes(RESOURCE)
    assert len({states[each.node].product for each in made}) == 1
