"""What one pod that asks for leaf switches has asked in vain no other asks again."""

from extender.cache import decode, events
from extender.cache.cache import Cache
from extender.cache.requests import Resources
from extender.gang.gang import Gang
from extender.planning.candidates import CandidateNodes
from extender.planning.plan_input import TopologySnapshot
from extender.planning.topology import NetworkTopology, Rules
from extender.scheduling.node_filter import FilterResult
from tests.support.caches import apply, known_pod, reservations, switched
from tests.support.clock import NOW_S
from tests.support.extender import World
from tests.support.watched import labelled_pod, tenant

NAMES = ("n1", "n2", "n3", "n4")
#: More than a node takes.
FULL = Resources(0, 0, 2**62)


def waiting(name: str, count: int = 8) -> events.Change:
    """A pod that asks for leaf switches, as the watch shows it."""
    return decode.pod_change(labelled_pod("large-model-schema", count, name))


class Asking:
    """A planner of which is known for whom it makes plans."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        #: the jobs that plans were asked for
        self.asked: list[str] = []
        self._networks = NetworkTopology(cache, Rules())
        self.planner = World(cache, topology=self._topology).planner

    def _topology(self, gang: Gang) -> TopologySnapshot:
        self.asked.append(gang.title)
        return self._networks.snapshot(gang)

    def filter_nodes(
        self, name: str, nodes: tuple[str, ...] = NAMES
    ) -> FilterResult | None:
        return self.planner.filter_nodes(known_pod(self.cache, name), nodes)


def test_of_pods_alike_one_asks_for_all_until_something_changes() -> None:
    cache = switched(*NAMES)
    apply(cache, *(tenant(f"on-{name}", name, (0,)) for name in NAMES))
    apply(cache, *(waiting(f"pod-{i}") for i in range(5)))
    asking = Asking(cache)

    orders = [NAMES[i:] + NAMES[:i] for i in range(5)]
    said = [asking.filter_nodes(f"pod-{i}", orders[i]) for i in range(5)]
    assert [one.counts if one else () for one in said] == [
        (("without 8 free chips", 4),)
    ] * 5
    assert asking.asked == ["Pod default/pod-0"]

    apply(cache, events.PodDeleted(uid="uid-on-n2"))
    apply(cache, events.Ticked(), now_s=NOW_S + 5)  # a report would show it by now
    last = asking.filter_nodes("pod-4")
    assert last is not None
    assert not last.fitting
    # the first gets it, the second is told no, and with it the others
    assert reservations(cache)["uid-pod-0"].node == "n2"
    assert asking.asked[1:] == ["Pod default/pod-0", "Pod default/pod-1"]


def test_what_has_room_again_for_others_is_asked_again() -> None:
    cache = switched(*NAMES)
    full = [events.OtherPodUpdated(uid=f"web-{n}", node=n, ask=FULL) for n in NAMES]
    apply(cache, *full, waiting("pod-0"), waiting("pod-1"))
    asking = Asking(cache)
    asking.filter_nodes("pod-0")
    asking.filter_nodes("pod-1")
    assert (asking.asked, dict(reservations(cache))) == (["Pod default/pod-0"], {})

    apply(cache, events.PodDeleted(uid="web-n3"))

    result = asking.filter_nodes("pod-1")
    assert result is not None
    assert (reservations(cache)["uid-pod-0"].node, result.fitting) == ("n3", ())


def test_pods_that_ask_for_something_else_ask_for_themselves() -> None:
    cache = switched(*NAMES)
    apply(cache, *(tenant(f"on-{name}", name, (0,)) for name in NAMES))
    apply(cache, waiting("pod-0"), waiting("pod-1", count=4), waiting("pod-2"))
    asking = Asking(cache)

    asking.filter_nodes("pod-0")
    asking.filter_nodes("pod-0", NAMES[:2])
    result = asking.filter_nodes("pod-1")

    assert result is not None
    assert result.fitting
    assert asking.asked == [
        *["Pod default/pod-0"] * 2,  # of other nodes it is another question
        "Pod default/pod-1",
    ]


def test_what_is_said_of_one_pod_by_name_is_said_of_no_other() -> None:
    cache = switched(*NAMES)
    apply(cache, waiting("pod-0", count=3), waiting("pod-1", count=3))
    asking = Asking(cache)

    asking.filter_nodes("pod-0")
    asking.filter_nodes("pod-1")

    text = "a pod cannot have 3 chips of an Atlas 800 training server: "
    said = {gang.title: gang.plan.text for gang in cache.gangs.values()}
    assert said == {f"Pod default/pod-{i}": f"{text}pod-{i}" for i in (0, 1)}


def test_lists_of_the_same_nodes_are_kept_once() -> None:
    candidates = CandidateNodes()
    candidates.put("a", "", ("n1", "n2"))
    candidates.put("b", "", ("n2", "n1"))
    candidates.wait("b")
    assert candidates.get("b") is candidates.get("a")
    candidates.retain({"b"})
    assert (candidates.jobs, candidates.get("b"), candidates.get("a")) == (
        ["b"],
        ("n1", "n2"),
        (),
    )


def test_each_kind_of_a_job_has_nodes_of_its_own() -> None:
    candidates = CandidateNodes()
    candidates.put("a", "one", ("n1", "n2"))
    candidates.put("a", "two", ("n2", "n3"))

    assert candidates.of_kinds("a") == {"one": {"n1", "n2"}, "two": {"n2", "n3"}}
    assert sorted(candidates.get("a")) == ["n1", "n2", "n3"]


def test_nodes_of_a_job_outlive_its_plan() -> None:
    candidates = CandidateNodes()
    candidates.put("a", "", ("n1",))
    candidates.wait("a")
    candidates.drop("a")

    assert (candidates.jobs, candidates.get("a")) == ([], ("n1",))
