"""Owners of pods of any kind and API group: get, without a struct.

Their kinds belong to other projects, and the extender reads one number of each. A
module of its own, as all requests to the API server are in this package, by kind.
"""

from kube.client import Client
from kube.objects import decode


async def get(client: Client, path: str) -> object:
    """Return an object from the API server, as plain JSON values.

    Args:
        client: An open client.
        path: Such as `/apis/batch/v1/namespaces/ml/jobs/train`.

    Raises:
        NotFoundError: It or its kind does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    return decode(await client.request("GET", path), object, path)
