"""Two extenders that evict after faults, of which one leads."""

import asyncio
import signal

from tests.e2e import ours
from tests.e2e.bare import BareCluster, until
from tests.e2e.ours import Extender
from tests.e2e.places import REPOSITORY
from tests.extender.replicas import Replicas

_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ascend-extender"
#: The other one leads ten seconds after the leader has died.
_ARGUMENTS = (
    *("--rescheduling", "evict", "--job-rules", "per-pod"),
    *("--lease", "ascend-extender", "--lease-s", "8", "--bind-s", "1"),
)


class Extenders:
    """The scheduler calls the one that is ready. Protects that there are two."""

    def __init__(self) -> None:
        self._cluster: BareCluster | None = None
        self._front: asyncio.Server | None = None
        self._found = Replicas()
        #: {name: extender} of those that run
        self._running: dict[str, Extender] = {}
        self._count = 0

    def close(self) -> None:
        """Take no more calls. The extenders end with their cluster."""
        if self._front is not None:
            self._front.close()

    async def serve(self, cluster: BareCluster) -> None:
        """Start both, and the scheduler, which calls them as by a Service."""
        self._cluster = cluster
        component = REPOSITORY / "daemonset" / "components" / "rescheduling"
        cluster.kubectl("apply", "-f", component / "access.yaml")
        self._front = await asyncio.start_server(self._found.forward, "127.0.0.1", 0)
        port = self._front.sockets[0].getsockname()[1]
        for _ in range(2):
            await self._start(cluster)
        await until(self._found.ready, "an extender leads")
        await cluster.start_scheduler(f"http://127.0.0.1:{port}")

    async def kill_leader(self) -> None:
        """Kill the one that leads; another one is started beside the one that is left.

        It does not lead yet when this returns.
        """
        await self._replace_leader(signal.SIGKILL)

    async def change_leader(self) -> None:
        """Tell the one that leads to end, and wait until the other one leads."""
        await self._replace_leader(signal.SIGTERM)
        await until(self._found.ready, "an extender leads")

    async def _replace_leader(self, how: signal.Signals) -> None:
        assert self._cluster is not None
        lease = await self._cluster.api.get(_LEASE)
        name = lease["spec"]["holderIdentity"]
        leader = self._running.pop(name)
        self._cluster.programs.expect_end(name)
        leader.program.tell(how)
        await until(lambda: leader.program.has_ended, f"the end of {name}")
        del self._found.addresses[name]
        await self._start(self._cluster)

    async def _start(self, cluster: BareCluster) -> None:
        self._count += 1
        name = f"extender-{self._count}"
        extender = await ours.start_extender(
            cluster, *_ARGUMENTS, "--identity", name, name=name, waits=True
        )
        self._running[name] = extender
        self._found.addresses[name] = extender.url.removeprefix("http://")
