"""Which object or collection a URL names."""

import dataclasses
import urllib.parse

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Key
from sandbox.apiserver.resources import BY_PATH, PODS, Resource


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request is about.

    Attributes:
        namespace: Empty for cluster-scoped resources, and for all namespaces.
        name: Empty for a collection.
        subresource: `status`, `binding` …, or empty.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def qualified(self) -> str:
        """The resource with its group, and the subresource: `pods/binding`."""
        resource = self.resource.qualified
        return f"{resource}/{self.subresource}" if self.subresource else resource


def parse(path: str) -> Target | None:
    """Return what a URL path names, or None when nothing is served there.

    Raises:
        StatusError: The resource has no such subresource.
    """
    steps = [urllib.parse.unquote(step) for step in path.strip("/").split("/")]
    match steps:
        case ["api", "v1", *rest]:
            group, version = "", "v1"
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    # `namespaces/NAME` and its status are about the namespace itself.
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    return _target(group, version, namespace, rest)


_NEED_CONTAINERS = frozenset({"attach", "exec", "log", "portforward", "proxy"})


def _target(group: str, version: str, namespace: str, rest: list[str]) -> Target | None:
    resource = BY_PATH.get((group, version, rest[0])) if rest else None
    if resource is None or len(rest) > 3:
        return None
    if bool(namespace) and not resource.namespaced:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and resource.namespaced and not namespace:
        return None
    if subresource and not _has(resource, subresource):
        if resource is PODS and subresource in _NEED_CONTAINERS:
            raise statuses.no_containers(f"{resource.plural}/{subresource}")
        raise statuses.page_not_found()
    return Target(
        resource=resource, namespace=namespace, name=name, subresource=subresource
    )


def _has(resource: Resource, subresource: str) -> bool:
    if subresource == "status":
        return resource.has_status
    return any(subresource == name for name, _ in resource.subresources)
