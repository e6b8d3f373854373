"""Short names for what tests look at."""

from sandbox.apiclient import Object
from sandbox.kubelet import Kubelet


def mounted(kubelet: Kubelet) -> dict[str, tuple[str, ...]]:
    return {
        f"{record.pod}/{record.container}": record.ids
        for record in kubelet.containers()
        if record.running
    }


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
