"""Owners of pods of any kind and API group: get, without a struct.

Their kinds belong to other projects, and the extender reads one number of each. The
versions of some API groups come and go with releases of Kubernetes; of those the API
server is asked which it serves.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError, UnservedError
from kube.objects import decode

#: Stands for the version of the API group in a path.
VERSION = "{version}"


class _Served(msgspec.Struct, frozen=True):
    version: str = ""


class _ApiGroup(msgspec.Struct, frozen=True):
    """What the API server answers to `GET /apis/GROUP`."""

    versions: list[_Served] | None = None


class WorkloadRequests:
    """Sender of requests for owners of pods.

    It remembers the version in which it last found an object of an API group.
    """

    def __init__(self, client: Client) -> None:
        """Use a client that is open already; the caller closes it."""
        self._client = client
        #: {path of an API group: version in which an object was found last}
        self._found_in: dict[str, str] = {}

    async def get(self, path: str, versions: Sequence[str] = ()) -> object:
        """Return an object from the API server, as plain JSON values.

        With `versions`, the API server is asked at the first object which of them it
        serves, and again whenever an object is not found: it may have been upgraded.

        Args:
            path: Such as `/apis/batch/v1/namespaces/ml/jobs/train`; with `versions`,
                the version is `VERSION`.
            versions: Versions of the API group that the caller can read, the best
                first; empty if `path` has one.

        Raises:
            UnservedError: The API server serves none of `versions`.
            NotFoundError: The object or its kind does not exist.
            KubeError: The API server refused, or cannot be reached.
        """
        if not versions:
            return await self._get(path)
        group = path.partition(f"/{VERSION}/")[0]
        if group in self._found_in:
            # If it is not found, the API server may serve another version now.
            with suppress(NotFoundError):
                return await self._get_in(group, self._found_in[group], path)
        served = await self._ask_served(group, versions)
        for version in served[:-1]:
            # A version may lack this kind.
            with suppress(NotFoundError):
                return await self._get_in(group, version, path)
        return await self._get_in(group, served[-1], path)

    async def _get_in(self, group: str, version: str, path: str) -> object:
        found = await self._get(path.replace(VERSION, version))
        self._found_in[group] = version
        return found

    async def _get(self, path: str) -> object:
        return decode(await self._client.request("GET", path), object, path)

    async def _ask_served(self, group: str, versions: Sequence[str]) -> Sequence[str]:
        """Return those of `versions` that the API server serves; at least one.

        An account without the right to ask gets all of them: each is tried.
        """
        try:
            body = await self._client.request("GET", group)
        except ForbiddenError:
            return versions
        except NotFoundError as error:
            raise UnservedError(f"{group} is not served in any version") from error
        found = decode(body, _ApiGroup, group).versions or []
        names = [served.version for served in found]
        readable = [version for version in versions if version in names]
        if readable:
            return readable
        raise UnservedError(
            f"{group} is served in {', '.join(names) or 'no version'}; "
            f"the extender reads {', '.join(versions)}"
        )
