"""A cluster for somebody to try: what to type, and where."""

import json
from collections.abc import Sequence

from sandbox.demo import pods
from sandbox.demo.terminal import Terminal
from sandbox.world import Machine, World

_POD_FILE = "pod.json"


async def invite(world: World, terminal: Terminal) -> None:
    """Say how to get in, and five things worth trying."""
    node, *others = world.nodes.values()
    machines = [each.machine for each in (node, *others)]
    pod_file = world.premises.root / _POD_FILE
    row = node.machine.row
    count = row.counts[min(1, len(row.counts) - 1)]
    manifest = pods.manifest("mine", count, resource=row.resource)
    pod_file.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    terminal.title("A cluster with simulated chips")
    for line in _described(machines):
        terminal.say(line)
    terminal.say()
    terminal.say(f"export KUBECONFIG={world.premises.kubeconfig}")
    for command in commands(str(pod_file), node.name):
        terminal.say(f"  {command}")
    terminal.say()
    terminal.say(f"Break a chip: edit {node.driver_file}")
    terminal.say("Break more:   ascend-sandbox faults lists what there is")
    terminal.say(f"Ask why:      curl {world.extender_url}/v1/explain/default/mine")
    terminal.say(f"Logs:         {world.premises.logs}")
    terminal.say()
    terminal.say("Ctrl-C ends it, and leaves nothing behind.")


def commands(pod_file: str, node: str) -> tuple[str, ...]:
    """Return five commands worth trying, in this order."""
    return (
        f"kubectl apply -f {pod_file}",
        "kubectl get pods -o wide",
        "kubectl describe pod mine",
        f"kubectl describe cm mindx-dl-deviceinfo-{node} -n kube-system",
        "kubectl delete pod mine",
    )


def _described(machines: Sequence[Machine]) -> list[str]:
    """Return a line for each node: what kind of server it is."""
    margin = max(len(machine.name) for machine in machines)
    return [
        f"{machine.name:<{margin}}  {machine.row.name}: "
        f"{machine.row.chip_count} {machine.row.resource}"
        for machine in machines
    ]
