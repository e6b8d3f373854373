"""How does kube-scheduler ask an extender?

Bodies and errors as the real one sends and reads them (extender.go).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from sandbox.apiclient import Object
from sandbox.pods import Pod
from scheduler_core.products.lookup import STATIC_PARTS

#: a score of an extender is 0 to 10, the scheduler's own 0 to 100
_SCALE = 10


class ExtenderError(Exception):
    """The extender said no to the whole call, or did not answer properly."""


#: What its scheduler asks it about, as in `daemonset/overlays/kube-scheduler`.
MANAGED = {
    "huawei.com/Ascend910",
    "huawei.com/Ascend310",
    "huawei.com/Ascend310P",
    "huawei.com/npu",
    *STATIC_PARTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """One entry of `extenders` in the scheduler's configuration."""

    url: str
    node_cache_capable: bool = True
    http_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """Which nodes the extender leaves, and why not the others: {node: reason}."""

    names: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class Extender:
    """One HTTP extender."""

    def __init__(
        self, session: aiohttp.ClientSession, settings: ExtenderSettings
    ) -> None:
        self._session = session
        self._settings = settings
        self._timeout = aiohttp.ClientTimeout(total=settings.http_timeout_s)

    def is_interested(self, pod: Pod) -> bool:
        """Whether a container of the pod asks for a managed resource."""
        return any(
            MANAGED & (resources.get(kind) or {}).keys()
            for group in ("containers", "initContainers")
            for container in pod.source["spec"].get(group) or ()
            for resources in (container.get("resources") or {},)
            for kind in ("requests", "limits")
        )

    async def filter(self, pod: Pod, nodes: Sequence[Object]) -> Filtered:
        """Ask which of the nodes can take the pod.

        Raises:
            ExtenderError: the whole attempt has failed.
        """
        result = _lowered(await self._post("filter", self._arguments(pod, nodes)))
        if result.get("error"):
            raise ExtenderError(result["error"])
        return Filtered(
            names=self._remaining(result, nodes),
            failed=result.get("failednodes") or {},
            unresolvable=result.get("failedandunresolvablenodes") or {},
        )

    async def prioritize(self, pod: Pod, nodes: Sequence[Object]) -> dict[str, int]:
        """Ask for scores: {node: 0 to 100}.

        Raises:
            ExtenderError: there is no score.
        """
        result = await self._post("prioritize", self._arguments(pod, nodes))
        scores = [_lowered(entry) for entry in result or ()]
        return {entry["host"]: entry["score"] * _SCALE for entry in scores}

    async def bind(self, pod: Pod, node: str) -> None:
        """Let the extender bind the pod.

        Raises:
            ExtenderError: it did not, or nobody knows.
        """
        body = {
            "PodName": pod.name,
            "PodNamespace": pod.namespace,
            "PodUID": pod.uid,
            "Node": node,
        }
        result = _lowered(await self._post("bind", body))
        if result.get("error"):
            raise ExtenderError(result["error"])

    def _arguments(self, pod: Pod, nodes: Sequence[Object]) -> Object:
        arguments: Object = {"Pod": _bare(pod.source), "Nodes": None, "NodeNames": None}
        if self._settings.node_cache_capable:
            arguments["NodeNames"] = [node["metadata"]["name"] for node in nodes]
        else:
            items = [_bare(node) for node in nodes]
            arguments["Nodes"] = {"metadata": {}, "items": items}
        return arguments

    def _remaining(self, result: Object, nodes: Sequence[Object]) -> tuple[str, ...]:
        if self._settings.node_cache_capable and result.get("nodenames") is not None:
            offered = {node["metadata"]["name"] for node in nodes}
            for name in result["nodenames"]:
                if name not in offered:
                    raise ExtenderError(
                        f'extender "{self._settings.url}" claims a filtered node '
                        f'"{name}" which is not found in the input node list'
                    )
            return tuple(result["nodenames"])
        if result.get("nodes") is not None:
            return tuple(n["metadata"]["name"] for n in result["nodes"]["items"] or ())
        return ()

    async def _post(self, verb: str, body: Object) -> Any:
        """Call a verb as Go's client does, and return what it answers.

        Raises:
            ExtenderError: there was no answer, or one that does not count.
        """
        url = f"{self._settings.url.rstrip('/')}/{verb}"
        try:
            async with self._session.post(
                url,
                data=json.dumps(body),
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
            ) as response:
                if response.status != HTTPStatus.OK:
                    raise ExtenderError(
                        f"failed {verb} with extender at URL {url}, "
                        f"code {response.status}"
                    )
                return json.loads(await response.read())
        except TimeoutError:
            raise ExtenderError(
                f'Post "{url}": context deadline exceeded '
                "(Client.Timeout exceeded while awaiting headers)"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtenderError(f'Post "{url}": {error}') from error


def _bare(source: Object) -> Object:
    # Go's informers keep objects without kind and version.
    return {
        key: value for key, value in source.items() if key not in {"kind", "apiVersion"}
    }


def _lowered(result: Any) -> Object:
    # Go matches field names without regard to case.
    return {str(key).lower(): value for key, value in (result or {}).items()}
