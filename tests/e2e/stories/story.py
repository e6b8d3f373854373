"""One job's story, told step by step; each step asks whether the laws hold."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from sandbox.apiclient import ApiStatusError, Object
from tests.e2e.bare import until
from tests.e2e.stages import CannotError
from tests.e2e.stories import kinds, laws, lives
from tests.e2e.stories.history import PATHS, History
from tests.e2e.stories.lives import NEVER, Life
from tests.e2e.stories.world import World
from tests.support.objects import PODS

#: An event may be on its way.
_LAG_S = 1.0
_LOOK_S = 0.3
_RIVAL = "Job rival"
_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_TOO_MANY_REQUESTS = 429
#: Longer than any law has.
_SETTLED_S = laws.WITHIN_S + 2 * _LAG_S


class BrokenLawError(Exception):
    """A law was broken; the text has the sentences and what became of each pod."""


#: Each story that can have a rival for its nodes is told without and with one.
RIVAL = pytest.mark.parametrize("has_rival", [False, True], ids=["alone", "rival"])


class Story:
    """A story that runs. Protects its history."""

    def __init__(self, world: World, history: History) -> None:
        self.api, self.kubelets = world.api, world.kubelets
        self._places = world.places
        self._paths = [PATHS[kind] for kind in world.kinds]
        self._history = history
        self._watching = asyncio.create_task(history.follow())
        self._tasks = [*world.tasks, self._watching]

    def pods(self) -> list[Life]:
        """What became of each pod until now."""
        return lives.read(self._history.told)

    def born(self) -> list[Object]:
        """Return each pod as it was when it was made."""
        first: dict[str, Object] = {}
        for each in self._history.told:
            if each.item["kind"] == "Pod":
                first.setdefault(each.item["metadata"]["uid"], each.item)
        return list(first.values())

    def obey(self) -> None:
        """Make sure that no law was broken until now.

        Raises:
            BrokenLawError: One was.
        """
        for task in self._tasks:
            if task.done():
                task.result()
        now_s = self._history.now_s - _LAG_S
        found = laws.broken(self.pods(), self._places, now_s)
        if found:
            raise BrokenLawError("\n".join([*found, "", *self.lines()]))

    def lines(self) -> list[str]:
        """What happened, by time."""
        found = sorted(
            (at_s, each.name, text, each.generation[:4] + each.generation[-2:])
            for each in self.pods()
            for at_s, text in (
                (each.created_s, "created"),
                (each.bound_s, f"bound to {each.node}"),
                (each.leaves_s, "deleted"),
                (each.ended_s, "ended"),
            )
            if at_s != NEVER
        )
        return [
            f"{at_s:7.2f}  {name} ({key}) {text}" for at_s, name, text, key in found
        ]

    async def until(
        self,
        reached: Callable[[], Awaitable[bool] | bool],
        what: str,
        *,
        within_s: float = 60.0,
    ) -> None:
        """Wait for something while the laws hold.

        Raises:
            BrokenLawError: One was broken.
            CannotError: It did not come in time.
        """

        async def is_reached() -> bool:
            self.obey()
            await asyncio.sleep(_LOOK_S)
            found = reached()
            return found if isinstance(found, bool) else await found

        try:
            await until(is_reached, what, within_s=within_s)
        except CannotError as error:
            self.obey()
            raise CannotError("\n".join([str(error), *self.lines()])) from error
        self.obey()

    async def runs(self, job: str, pods: int, *, within_s: float = 60.0) -> None:
        """Wait until so many pods of a job have a node, none waits and none ends."""

        def do_run() -> bool:
            there = [e for e in self.pods() if e.job == job and e.ended_s == NEVER]
            are_bound = all(e.bound_s < NEVER and e.leaves_s == NEVER for e in there)
            return are_bound and len(there) == pods

        await self.until(do_run, f"{pods} pods of {job} run", within_s=within_s)
        await self.ready(job)

    async def ready(self, job: str) -> None:
        """Wait until the pods of a job that have a node are ready."""
        names = {e.name for e in self.pods() if e.job == job and e.ended_s == NEVER}

        async def are_ready() -> bool:
            items = await self.api.items(PODS)
            phases = {i["metadata"]["name"]: i["status"].get("phase") for i in items}
            return all(phases.get(name) in ("Running", None) for name in names)

        await self.until(are_ready, f"pods of {job} ready")

    async def goes_on(self, seconds: float = _SETTLED_S) -> None:
        """See that the laws hold for a while."""
        end_s = self._history.now_s + seconds
        await self.until(
            lambda: self._history.now_s > end_s, "the end", within_s=seconds + 60
        )

    async def is_absent(self, path: str, name: str) -> None:
        """Wait until an object is gone, though not all that belonged to it."""

        async def has_gone() -> bool:
            items = await self.api.items(path)
            return name not in {each["metadata"]["name"] for each in items}

        await self.until(has_gone, f"{name} gone")

    async def is_gone(self, name: str) -> None:
        """Wait until a pod of that name has ended, or its successor is there."""
        count = sum(each.name == name for each in self.pods())

        def has_gone() -> bool:
            again = [each for each in self.pods() if each.name == name]
            return len(again) > count or again[-1].ended_s < NEVER

        await self.until(has_gone, f"{name} gone")

    async def has_nodes(self, job: str, pods: int) -> None:
        """Wait until so many pods of a job have a node."""
        await self.until(lambda: self._bound(job) >= pods, f"{pods} pods of {job}")

    def _bound(self, job: str) -> int:
        now_s = self._history.now_s
        return sum(each.job == job and each.holds(now_s) for each in self.pods())

    async def rival_waits(self) -> None:
        """Make sure that the rival got no node until now."""
        await self.goes_on(_LAG_S)
        assert not self._bound(_RIVAL)

    def name(self, job: str, rank: str) -> str:
        """Return the name of the newest pod of a job with this rank."""
        found = [e for e in self.pods() if (e.job, e.rank) == (job, rank)]
        return found[-1].name

    def generation(self, job: str) -> str:
        """Return which making of a job is the newest."""
        return [e for e in self.pods() if e.job == job][-1].generation

    async def made_anew(self, job: str, before: str) -> None:
        """Wait until there is a pod of a later making of a job.

        Args:
            job: Kind and name.
            before: The making that it is to be later than.
        """
        await self.until(lambda: self.generation(job) != before, f"{job} made anew")

    async def create(self, path: str, body: Object) -> None:
        """Make an object."""
        await self.api.create(path, body)

    async def delete(self, path: str, name: str) -> None:
        """Delete an object, and in the background all that belongs to it."""
        await self.api.request(
            "DELETE",
            f"{path}/{name}",
            body={
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "propagationPolicy": "Background",
            },
        )

    async def make_anew(self, path: str, body: Object) -> None:
        """Delete an object and make it again, while its old pods do not end."""
        name = body["metadata"]["name"]
        self.kubelets.keep(f"{name}-")
        await self.delete(path, name)
        await self.is_absent(path, name)
        await self.create(path, body)

    async def suspend_and_resume(
        self,
        path: str,
        name: str,
        patch: Callable[[bool], Object] = kinds.suspended,
    ) -> None:
        """Suspend a job for 3 s, while its pods do not end.

        Args:
            path: Of its kind.
            name: Of the job.
            patch: Whether it is suspended -> patch that says so.
        """
        self.kubelets.keep(f"{name}-")
        await self.api.patch(f"{path}/{name}", patch(True))  # noqa: FBT003  # its value
        await self.goes_on(3)
        await self.api.patch(f"{path}/{name}", patch(False))  # noqa: FBT003  # its value

    async def rival(self, pods: int = 2) -> None:
        """Have a job wait for nodes that are taken."""
        await self.create(kinds.JOBS, kinds.job("rival", pods))

        await self.told("nodes are available", "rival-")

    async def told(self, text: str, name: str) -> None:
        """Wait until a condition of a pod whose name begins so has a text."""

        async def is_told() -> bool:
            return any(
                each["metadata"]["name"].startswith(name)
                and text in condition.get("message", "")
                for each in await self.api.items(PODS)
                for condition in each["status"].get("conditions", ())
            )

        await self.until(is_told, f"{name} told: {text}")

    async def rival_ends(self, job: str, pods: int) -> None:
        """See one of two jobs run, or both; then the other when the rival is gone."""

        def does_run() -> bool:
            return self._bound(job) >= pods

        await self.until(
            lambda: does_run() or self._bound(_RIVAL) > 0, f"{job} or its rival runs"
        )
        if not does_run():
            await self.goes_on()
        await self.delete(kinds.JOBS, "rival")
        await self.runs(job, pods)

    async def runs_again(self, job: str, pods: int, *, has_rival: bool) -> None:
        """See a job run, at last when its rival has gone."""
        if has_rival:
            await self.rival_ends(job, pods)
        await self.runs(job, pods)

    async def replaced_early(self, job: str, rank: str) -> None:
        """Delete the pod of a rank; it ends 3 s after the one in its place has come."""
        name = self.name(job, rank)
        self.kubelets.keep(name)
        await self.api.delete(f"{PODS}/{name}")
        await self.until(lambda: self.name(job, rank) != name, "a pod in its place")
        await self.goes_on(3)
        await self.kubelets.end_all()

    @contextlib.asynccontextmanager
    async def budget(self, labels: Mapping[str, str], pods: int) -> AsyncIterator[None]:
        """Have a budget that lets none of so many pods be evicted.

        Args:
            labels: Of the pods.
            pods: How many these are.
        """
        spec = {"minAvailable": pods, "selector": {"matchLabels": labels}}
        await self.create(_BUDGETS, {"metadata": {"name": "all"}, "spec": spec})

        async def is_counted() -> bool:
            found = await self.api.get(f"{_BUDGETS}/all")
            return bool(found.get("status", {}).get("currentHealthy") == pods)

        try:
            await self.until(is_counted, "the budget counts the pods")
            yield
        finally:
            await self.api.delete(f"{_BUDGETS}/all")

    async def evicted_in_spite_of_a_budget(
        self, name: str, labels: Mapping[str, str], pods: int
    ) -> None:
        """See a budget keep a pod from eviction, and nothing change; then evict it.

        Args:
            name: Of the pod.
            labels: Of all pods of its job.
            pods: How many these are.
        """
        async with self.budget(labels, pods):
            before = self.pods()
            with pytest.raises(ApiStatusError) as refused:
                await self.evict(name)
            assert refused.value.status == _TOO_MANY_REQUESTS
            await self.goes_on(3)
            assert self.pods() == before
        await self.evict(name)

    async def evict(self, name: str) -> None:
        """Ask for the eviction of a pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": "default"},
        }
        await self.create(f"{PODS}/{name}/eviction", body)

    async def clear(self) -> None:
        """Delete all that there is; the story is over."""
        await self.kubelets.ready_all()
        await self.kubelets.end_all()
        for path in self._paths:
            for each in await self.api.items(path):
                if not each["metadata"].get("ownerReferences"):
                    with contextlib.suppress(ApiStatusError):  # gone meanwhile
                        await self.delete(path, each["metadata"]["name"])

        async def is_empty() -> bool:
            return not any([await self.api.items(path) for path in self._paths])

        await until(is_empty, "nothing left")
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
