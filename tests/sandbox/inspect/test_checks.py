from dataclasses import replace

from sandbox.inspect import checks
from sandbox.inspect.checks import Pairing, Place
from tests.sandbox.facts import ALL, choice, cluster, mount, node, pod


def test_nodes_that_offer_all_chips_are_registered() -> None:
    assert checks.registered([node("a"), node("b")]) == ()


def test_a_node_that_offers_less_is_named_with_what_it_lacks() -> None:
    assert checks.registered([replace(node("a"), allocatable=7)]) == (
        "a should have allocatable 8, has 7",
    )


def test_pods_that_run_and_are_confirmed_are_served() -> None:
    assert checks.served([pod("a", 0), pod("b", 2, 3)]) == ()


def test_a_pod_is_not_served_while_anything_is_missing() -> None:
    failed = replace(pod("a", 0), phase="Failed", message="Allocate failed")
    open_ = replace(pod("b", 1), is_confirmed=False)
    short = replace(pod("c", 2, 3), real=(2,))

    assert checks.served([failed, open_, short]) == (
        "a should be Running, is Failed: Allocate failed",
        "b runs, but nobody confirmed whose chips it has",
        "c asks for 2 chips, has 2",
    )


def test_containers_that_have_what_annotations_say_are_paired() -> None:
    seen = cluster(
        pod("a", 0, 1), mount("a", 0, 1), pod("b", 4), mount("b", 4, ids=(7,))
    )

    assert checks.paired(seen) == Pairing()


def test_each_annotation_is_compared_with_the_mount() -> None:
    stale = replace(pod("a", 2, 3), real=(0, 1))

    assert checks.paired(cluster(stale, mount("a", 0, 1))).problems == (
        "a on n has 0,1 mounted, huawei.com/Ascend910 says 2,3",
    )


def test_a_running_pod_without_any_chip_is_a_wrong_pairing() -> None:
    assert checks.paired(cluster(pod("a", 0))).wrong == (
        "a on n has none mounted, huawei.com/Ascend910 says 0",
        "a on n has none mounted, huawei.com/AscendReal says 0",
    )


def test_a_chip_with_two_owners_is_named_with_both() -> None:
    seen = cluster(pod("a", 0), mount("a", 0), pod("b", 0), mount("b", 0))

    assert checks.paired(seen) == Pairing(doubled=("chip 0 of n has 2 owners: a, b",))


def test_the_same_chip_number_on_two_nodes_is_two_chips() -> None:
    seen = cluster(
        pod("a", 0), mount("a", 0), pod("b", 0, on="m"), mount("b", 0, on="m")
    )

    assert checks.paired(seen) == Pairing()


def test_a_config_map_agrees_when_it_holds_what_is_mounted() -> None:
    assert checks.agreed(cluster(node(held=(0, 5)), mount("a", 0), mount("b", 5))) == ()


def test_a_config_map_that_lags_behind_disagrees() -> None:
    assert checks.agreed(cluster(node(), mount("a", 0))) == (
        "n: held should be 0, its ConfigMap says none",
        "n: available should be 1,2,3,4,5,6,7, its ConfigMap says 0,1,2,3,4,5,6,7",
    )


def test_a_configuration_has_what_is_mounted_and_the_nodes_address() -> None:
    right = cluster(node(), pod("a", 0, 1), mount("a", 0, 1))
    wrong = replace(pod("a", 0, 1), configured=(2, 3), host_ip="")
    pending = replace(wrong, name="b", phase="Pending")
    unconfirmed = replace(wrong, name="c", is_confirmed=False)
    seen = cluster(node(), wrong, pending, unconfirmed, mount("a", 0, 1))

    assert checks.configured(right) == ()
    assert checks.configured(seen) == (
        "a: devices should be 0,1, its configuration says 2,3",
        "a: its node's address should be 192.0.2.1, its configuration says none",
    )


def test_equal_pods_may_swap_their_sets() -> None:
    seen = cluster(
        pod("a", 2, 3), mount("a", 2, 3), pod("b", 0, 1), mount("b", 0, 1, ids=(0, 7))
    )
    chosen = {"uid-a": choice("a", 0, 1), "uid-b": choice("b", 2, 3)}

    assert checks.as_chosen(seen, chosen) == ()


def test_a_set_that_nobody_chose_is_found_although_annotations_follow_it() -> None:
    seen = cluster(pod("a", 0, 7), mount("a", 0, 7), pod("b", 2, 3), mount("b", 2, 3))
    chosen = {"uid-a": choice("a", 0, 1), "uid-b": choice("b", 2, 3)}

    assert checks.paired(seen) == Pairing()
    assert checks.as_chosen(seen, chosen) == (
        "n: bind chose {0,1}, mounted is {0,7} instead",
    )


def test_sets_do_not_swap_between_nodes() -> None:
    seen = cluster(
        pod("a", 1), mount("a", 1), pod("b", 0, on="m"), mount("b", 0, on="m")
    )
    chosen = {"uid-a": choice("a", 0), "uid-b": choice("b", 1, on="m")}

    assert checks.as_chosen(seen, chosen) == (
        "m: bind chose {1}, mounted is {0} instead",
        "n: bind chose {0}, mounted is {1} instead",
    )


def test_a_set_that_is_mounted_twice_is_one_too_many() -> None:
    seen = cluster(pod("a", 0), mount("a", 0), mount("a", 0))

    assert checks.as_chosen(seen, {"uid-a": choice("a", 0)}) == (
        "n: bind chose none, mounted is {0} instead",
    )


def test_a_pod_whose_binding_was_not_seen_proves_nothing() -> None:
    assert checks.as_chosen(cluster(pod("a", 0)), {}) == (
        "a was never seen with bind's annotations",
    )


def test_up_to_four_chips_belong_in_one_ring() -> None:
    pods = [pod("a", 0, 3), pod("b", 3, 4), pod("c", *ALL)]

    assert checks.placed_well(pods) == ("b has chips 3,4, in more than one HCCS ring",)


def test_a_race_counts_when_ids_and_order_were_others() -> None:
    seen = cluster(pod("a", 0), mount("a", 0, ids=(7,)), pod("b", 1), mount("b", 1))
    chosen = {"uid-a": choice("a", 0, time=1), "uid-b": choice("b", 1, time=2)}

    assert checks.raced(seen, chosen, {"b": 0, "a": 1}) == ()


def test_a_race_without_surprises_proves_nothing() -> None:
    seen = cluster(pod("a", 0), mount("a", 0), pod("b", 1), mount("b", 1))
    chosen = {"uid-a": choice("a", 0, time=1), "uid-b": choice("b", 1, time=2)}

    assert checks.raced(seen, chosen, {"a": 0, "b": 1}) == (
        "no kubelet took ids of its own choice",
        "n admitted its pods in the order of scheduling",
    )


def test_a_broken_chip_must_be_known_to_everybody() -> None:
    assert checks.unhealthy(node(unhealthy=(3,)), (3,)) == ()
    assert checks.unhealthy(node(), ()) == ()


def test_whoever_does_not_know_of_a_broken_chip_is_named() -> None:
    late = replace(node(unhealthy=(3,)), unhealthy=(), allocatable=8)

    assert checks.unhealthy(late, (3,)) == (
        "n: allocatable should be 7, is 8",
        "n: ConfigMap's unhealthy list should be (3,), is ()",
    )


def test_a_chip_that_recovers_is_still_out_of_service() -> None:
    recovering = replace(node(unhealthy=(3,)), unhealthy=(), recovering=(3,))

    assert checks.unhealthy(recovering, (3,)) == ()


def test_a_pod_without_its_kept_place_is_told() -> None:
    kept = {"a": Place("n1", (0, 1)), "b": Place("n2", (2,))}

    assert checks.placed(kept, kept) == ()
    assert checks.placed({"b": Place("n1", (2,))}, kept) == (
        "a should have 0,1 of n1, has none",
        "b should have 2 of n2, has 2 of n1",
    )


def test_a_pending_pod_has_nothing() -> None:
    waiting = replace(pod("a", on=""), phase="Pending", count=4)

    assert checks.stays_pending(waiting) == ()
    assert checks.stays_pending(replace(waiting, node="n")) == (
        "a should be Pending without node and chips, is Pending on n with none",
    )


def test_a_re_choice_and_a_silent_counter_are_both_wrong() -> None:
    assert checks.not_rechosen({"a": 0.0}) == ()
    assert checks.not_rechosen({"a": 0.0, "b": 2.0, "c": None}) == (
        "b's agent chose 2 again",
        "c's agent does not count re-choices",
    )


def test_an_event_explains_when_its_reasons_account_for_all_nodes() -> None:
    text = "0/3 nodes are available: 1 chip unhealthy, 2 agent silent. preemption: …"

    assert checks.explained(text, {"chip unhealthy": 1, "agent silent": 2}) == ()


def test_an_event_that_leaves_a_node_out_does_not_explain() -> None:
    text = "0/3 nodes are available: 2 agent silent."

    assert checks.explained(text, {"chip unhealthy": 1, "agent silent": 2}) == (
        f"the event should say '1 chip unhealthy', says {text!r}",
    )
    assert checks.explained("no room", {"agent silent": 1}) == (
        "the event should begin with 0/1 nodes, says 'no room'",
        "the event should say '1 agent silent', says 'no room'",
    )


def test_what_must_not_happen_is_told_when_it_did() -> None:
    assert checks.summed_up({"wrong pairings": 0, "double allocations": 1}) == (
        "double allocations: 1, not 0",
    )
