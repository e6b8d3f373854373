"""Owners of pods of any kind and API group: get, without a struct.

Their kinds belong to other projects, and the extender reads one number of each. A
module of its own, as all requests to the API server are in this package, by kind.
"""

import msgspec

from kube.client import Client
from kube.errors import MalformedError
from service.decoding import DECODE_ERRORS, describe_decode_error


async def get(client: Client, path: str) -> object:
    """Return an object from the API server, as plain JSON values.

    Args:
        client: An open client.
        path: Such as `/apis/batch/v1/namespaces/ml/jobs/train`.

    Raises:
        NotFoundError: It or its kind does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    body = await client.request("GET", path)
    try:
        return msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        raise MalformedError(describe_decode_error(path, error)) from error
