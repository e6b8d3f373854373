"""A cluster for somebody to try: what to type, and where."""

import json

from sandbox.demo import observer, picture, pods
from sandbox.demo.terminal import Terminal
from sandbox.world import World

_POD_FILE = "pod.json"


async def invite(world: World, terminal: Terminal) -> None:
    """Say how to get in, and five things worth trying."""
    pod_file = world.premises.root / _POD_FILE
    pod_file.write_text(json.dumps(pods.manifest("mine", 2), indent=2) + "\n")
    node = next(iter(world.nodes.values()))
    terminal.title("A cluster of three nodes with eight simulated chips each")
    terminal.lines(picture.nodes(await observer.cluster(world)))
    terminal.say()
    terminal.say(f"export KUBECONFIG={world.premises.kubeconfig}")
    for command in (
        f"kubectl create -f {pod_file}",
        "kubectl get pods -o wide",
        "kubectl describe pod mine",
        f"kubectl describe cm mindx-dl-deviceinfo-{node.name} -n kube-system",
        "kubectl delete pod mine",
    ):
        terminal.say(f"  {command}")
    terminal.say()
    terminal.say(f"Break a chip: edit {node.driver_file}")
    terminal.say(f"Ask why:      curl {world.extender_url}/v1/explain/default/mine")
    terminal.say(f"Logs:         {world.premises.logs}")
    terminal.say()
    terminal.say("Ctrl-C ends it, and leaves nothing behind.")
