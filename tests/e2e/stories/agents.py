"""Agents of nodes without machines: they confirm pods, and report chips.

A chip breaks on order only.
"""

import asyncio
from collections.abc import Mapping

from sandbox.apiclient import ApiClient, Listed, Object
from scheduler_core.products.columns import Product
from scheduler_core.wire import annotations
from tests.e2e import npu_nodes
from tests.e2e.stories import kubelets
from tests.support.objects import PODS

_HEARTBEAT_S = 20.0
_OVER = ("Succeeded", "Failed")


class Agents:
    """Confirms the claims of bound pods, and reports who has which chips.

    Protects that reports of one node are written one after the other.
    """

    def __init__(self) -> None:
        #: {uid: (node, chips)} of pods that have chips
        self._held: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: {node: chips that are broken}
        self._broken: dict[str, tuple[int, ...]] = {}
        #: nodes whose reports are old
        self._due: set[str] = set()
        self._is_due = asyncio.Event()

    def break_chips(self, nodes: Mapping[str, tuple[int, ...]]) -> None:
        """Have these chips broken from now on, and no others.

        Args:
            nodes: {node: its broken chips}.
        """
        before, self._broken = self._broken, dict(nodes)
        self._note(*before, *nodes)

    async def follow(self, api: ApiClient, servers: Mapping[str, Product]) -> None:
        """Serve the nodes for ever.

        Args:
            api: Of the API server.
            servers: {node: what it is}.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_pods(api, servers))
            tasks.create_task(self._write(api, servers))
            tasks.create_task(self._beat(servers))

    async def _follow_pods(
        self, api: ApiClient, servers: Mapping[str, Product]
    ) -> None:
        async for event in api.follow(PODS):
            items = event.items if isinstance(event, Listed) else [event.item]
            if isinstance(event, Listed):
                there = {item["metadata"]["uid"] for item in items}
                for uid in self._held.keys() - there:
                    self._release(uid)
            for item in items:
                is_gone = not isinstance(event, Listed) and event.gone
                if is_gone or item["status"].get("phase") in _OVER:
                    self._release(item["metadata"]["uid"])
                elif node := item["spec"].get("nodeName"):
                    await self._serve(api, item, node, servers[node])

    async def _serve(
        self, api: ApiClient, pod: Object, node: str, product: Product
    ) -> None:
        """Confirm a pod that is bound, unless it is confirmed already."""
        meta = pod["metadata"]
        notes = meta.get("annotations") or {}
        claim = notes.get(product.resource)
        if not claim or meta["uid"] in self._held:
            return
        chips = annotations.parse_chips(claim, product)
        self._held[meta["uid"]] = node, chips
        self._note(node)
        marks = {
            annotations.ASCEND_REAL: claim,
            annotations.PREDICATE_TIME: str(annotations.SERVED),
        }
        body = {"metadata": {"uid": meta["uid"], "annotations": marks}}
        with kubelets.gone():
            await api.patch(f"{PODS}/{meta['name']}", body)

    def _release(self, uid: str) -> None:
        node, _ = self._held.pop(uid, ("", ()))
        if node:
            self._note(node)

    def _note(self, *nodes: str) -> None:
        self._due.update(nodes)
        self._is_due.set()

    async def _write(self, api: ApiClient, servers: Mapping[str, Product]) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._due = sorted(self._due), set()
            for node in due:
                held = (chips for at, chips in self._held.values() if at == node)
                await npu_nodes.set_report(
                    api,
                    node,
                    servers[node],
                    held=sorted(chip for chips in held for chip in chips),
                    broken=self._broken.get(node, ()),
                )

    async def _beat(self, servers: Mapping[str, Product]) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            self._note(*servers)
