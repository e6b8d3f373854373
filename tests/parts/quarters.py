"""The place of each test that `make test` does not run: the core, or one quarter.

Tests of the core carry the mark `core`. All other tests of a file, and each target of
make that tests something, belong to one quarter of `QUARTERS`. The quarters take about
as long as each other: on two processors, each file has its seconds beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarter:
    """What runs together."""

    #: files on the node of the real cluster. Those of `faults` stand last: their pods
    #: stay from the first of them to the last.
    node: Sequence[str]
    #: files on a control plane without a node
    bare: Sequence[str]
    #: files whose tests marked `long` run
    long: Sequence[str]
    #: targets of make, with their variables
    make: Sequence[tuple[str, ...]]
    #: files about jobs that real controllers make, which are built first
    controllers: Sequence[str] = ()


#: Jobs of operators that have to be built with other modules: `make everything` alone.
OPERATORS: Final = ("tests/e2e/stories/test_operators.py",)
#: Runs for as long as one likes, by chance.
BY_HAND: Final = ("tests/e2e/faults/test_soak.py",)

QUARTERS: Final[Sequence[Quarter]] = (
    Quarter(
        node=(
            "tests/e2e/test_cluster.py",
            "tests/e2e/test_labels.py",
            "tests/e2e/test_reinstall.py",
            "tests/e2e/test_rivals.py",
            "tests/e2e/test_rollout_of_busy_node.py",
            "tests/e2e/faults/test_agent.py",
            "tests/e2e/faults/test_node.py",
        ),
        bare=("tests/e2e/test_hybrid_jobs.py",),
        long=(
            "tests/agent/claims/test_state_machine.py",
            "tests/agent/test_static_parts.py",
            "tests/agent/test_successors.py",
            "tests/extender/cache/test_reservation_machine.py",
            "tests/extender/gang/test_permit_transitions.py",
            "tests/extender/test_jobs_between_nodes.py",
            "tests/extender/test_promises.py",
        ),
        make=(),
        controllers=(
            "tests/e2e/stories/test_evictions.py",
            "tests/e2e/stories/test_job_sets.py",
            "tests/e2e/stories/test_jobs.py",
            "tests/e2e/stories/test_kinds_of_npu.py",
            "tests/e2e/stories/test_least.py",
            "tests/e2e/stories/test_marks.py",
            "tests/e2e/stories/test_worker_sets.py",
        ),
    ),
    Quarter(
        node=(
            "tests/e2e/test_containers.py",
            "tests/e2e/test_contract.py",
            "tests/e2e/test_owners.py",
            "tests/e2e/test_races.py",
            "tests/e2e/test_standalone.py",
        ),
        bare=(
            "tests/e2e/test_hybrid_servers.py",
            "tests/e2e/test_hybrid_volcano.py",
            "tests/e2e/test_hybrid_volcano_churn.py",
            "tests/e2e/test_hybrid_waiting.py",
            "tests/e2e/test_volcano_page.py",
        ),
        long=(
            "tests/agent/report/test_labels_undone.py",
            "tests/agent/devices/dcmi/test_outcomes.py",
            "tests/hostile/test_rows.py",
            "tests/sandbox/faults/test_inject.py",
            "tests/scheduler_core/snapshot/test_schema.py",
            "tests/agent/devices/dcmi/test_slow_chips.py",
            "tests/agent/devices/dcmi/test_two_lines_machine.py",
            "tests/agent/test_foreign.py",
            "tests/agent/test_pod_resources_silent.py",
            "tests/agent/test_rivals.py",
            "tests/extender/rescheduling/test_machine.py",
            "tests/extender/rescheduling/test_moves_machine.py",
            "tests/extender/rescheduling/test_returns_machine.py",
            "tests/extender/test_jobs_between_nodes_machine.py",
            "tests/scheduler_core/rescheduling/test_ladder.py",
        ),
        make=(("aarch64",), ("audit",), ("properties", "WORKERS=2", "EXAMPLES=150")),
    ),
    Quarter(
        node=(
            "tests/e2e/test_placement.py",
            "tests/e2e/test_rollout.py",
            "tests/e2e/test_self_maintain.py",
            "tests/e2e/test_upgrade.py",
            "tests/e2e/test_late_agent.py",
            "tests/e2e/faults/test_control_plane.py",
            "tests/e2e/faults/test_disk_and_clock.py",
        ),
        bare=(
            "tests/e2e/test_hybrid_failover.py",
            "tests/e2e/test_hybrid_gangs.py",
            "tests/e2e/test_hybrid_native_groups.py",
            "tests/e2e/test_hybrid_preemption.py",
            "tests/e2e/test_hybrid_self_maintain.py",
        ),
        controllers=("tests/e2e/stories/test_moves.py",),
        long=(
            "tests/agent/devices/dcmi/test_hangs.py",
            "tests/agent/devices/dcmi/test_changed_under_agent.py",
            "tests/agent/devices/dcmi/test_boot_order.py",
            "tests/agent/test_against_kubelet.py",
            "tests/agent/pods/test_annotator.py",
            "tests/agent/test_crowded.py",
            "tests/extender/gang/test_size_machine.py",
            "tests/extender/test_random_elastic_jobs.py",
            "tests/daemonset/test_pairs.py",
            "tests/daemonset/test_policies.py",
            "tests/daemonset/test_uninstall.py",
            "tests/kube/test_under_fire.py",
            "tests/sandbox/demo/test_killing.py",
            "tests/sandbox/demo/test_moving.py",
            "tests/sandbox/demo/test_race.py",
            "tests/sandbox/test_doubled_pods_under_moves.py",
            "tests/sandbox/test_moves_under_jobs.py",
        ),
        make=(("scenarios",),),
    ),
    Quarter(
        node=(
            "tests/e2e/test_hybrid_scale.py",
            "tests/e2e/test_install_page.py",
            "tests/e2e/faults/test_chips.py",
            "tests/e2e/faults/test_libdcmi.py",
            "tests/e2e/faults/test_busy_server.py",
            "tests/e2e/faults/test_successors.py",
        ),
        bare=(
            "tests/e2e/faults/test_memory.py",
            "tests/e2e/test_hybrid_bare_nodes.py",
            "tests/e2e/test_hybrid_many_pods.py",
            "tests/e2e/test_hybrid_topology.py",
            "tests/e2e/test_policies.py",
            "tests/e2e/test_sandbox_kubectl.py",
            "tests/e2e/test_writers.py",
        ),
        long=(
            "tests/agent/report/test_schedule_property.py",
            "tests/agent/test_begins_anew.py",
            "tests/agent/test_needs_told.py",
            "tests/agent/test_chip_addresses.py",
            "tests/agent/test_quiet.py",
            "tests/agent/test_told_by_driver.py",
            "tests/extender/test_generations_machine.py",
            "tests/extender/test_job_controllers_machine.py",
            "tests/sandbox/test_machines.py",
            "tests/sandbox/test_world.py",
        ),
        make=(("fuzz", "FUZZ_SECONDS=60", "FUZZ_SEED=1"),),
    ),
)
