"""What must not change of containers that run, whatever happens around them."""

from dataclasses import dataclass

from tests.e2e import truth
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import container, first_container, pod

LABELS = {"part": "stays"}
#: Selects the pods that stay.
STAYING = "part=stays"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container of a pod, as it is now."""

    name: str
    id: str
    #: 0: it does not run
    pid: int
    restarts: int
    chips: tuple[int, ...]


def containers(namespace: Namespace, labels: str = "") -> dict[str, Container]:
    """Look at the containers of pods, ordinary init containers left out.

    Args:
        namespace: Whose pods.
        labels: A selector of them.

    Returns:
        Shape: {pod/container: what must not change of it}.
    """
    pids = namespace.cluster.container_pids()
    shown = namespace.pods(label_selector=labels)
    found = {}
    for each in shown:
        for status in each.status.container_statuses or []:
            name = f"{each.metadata.name}/{status.name}"
            uid = (status.container_id or "").removeprefix("containerd://")
            pid = pids.get(uid, 0)
            found[name] = Container(
                name=name,
                id=uid,
                pid=pid,
                restarts=status.restart_count,
                chips=truth.mounted(pid)[0] if pid else (),
            )
    return found


def have_staying(namespace: Namespace) -> dict[str, Container]:
    """Have pods of several kinds run with five chips; returns their containers.

    One has one container, one has two, and one has a chip that was an init
    container's before.
    """
    two = [container("a", 1), container("b", 1)]
    namespace.run(
        pod("two", 2, labels=LABELS),
        pod("several", containers=two, labels=LABELS),
        pod("initial", 1, initContainers=[first_container()], labels=LABELS),
    )
    truth.until_agreed(namespace.cluster)
    return containers(namespace, STAYING)
