"""The objects that make pods, of whatever kind: read one, and decode it whole.

They belong to others and come from many API groups; we read a number from each.
"""

import msgspec

from kube.client import Client
from kube.errors import MalformedError
from service.decoding import UNDECODABLE, undecodable


async def get(client: Client, path: str) -> object:
    """Return an object as the API server has it now, decoded.

    Args:
        client: An open client.
        path: The object's, such as `/apis/batch/v1/namespaces/ml/jobs/train`.

    Raises:
        NotFoundError: There is none, or no such kind.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    body = await client.request("GET", path)
    try:
        return msgspec.json.decode(body)
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error
