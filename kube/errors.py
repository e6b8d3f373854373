"""What can go wrong between us and the API server.

    KubeError                     anything below
    ├── CredentialsError          no server, token or certificate to start with
    ├── UnreachableError          no answer: network, timeout, cut stream
    │   └── SilentError           a watch without a word, so perhaps without a peer
    ├── MalformedError            an answer that is not what the API promises
    ├── StaleError                a list that is older than what we knew
    └── ApiError                  the API server said no: status, reason, message
        ├── UnauthorizedError     401  token missing, expired or unknown
        ├── ForbiddenError        403  RBAC lacks a verb
        ├── NotFoundError         404
        ├── ConflictError         409  other version, other UID, exists already
        ├── GoneError             410  the version is no longer in the history
        ├── InvalidError          422  the object breaks a rule
        └── TooManyRequestsError  429  wait `retry_after_s`

Attributes carry the facts; the text is made from them.
"""

import msgspec

from service.decoding import UNDECODABLE


class KubeError(Exception):
    """Something between us and the API server failed."""

    #: How long the server asks us to wait before the next try; 0 for no wish.
    retry_after_s: float = 0.0


class CredentialsError(KubeError):
    """There is no usable way to the API server; all problems, one a line."""


class UnreachableError(KubeError):
    """No answer came; whether the request had an effect is unknown."""


class SilentError(UnreachableError):
    """A watch was silent for longer than bookmarks are apart."""


class MalformedError(KubeError):
    """An answer came that does not decode."""


class StaleError(KubeError):
    """A list shows an earlier moment than what came before it: nobody saw it whole."""


class ApiError(KubeError):
    """The API server answered with an error."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        retry_after_s: float = 0.0,
        what: str = "",
    ) -> None:
        """Take what the server's Status object says.

        Args:
            status: The HTTP status, or the code inside a watch's ERROR event.
            reason: One word, such as `AlreadyExists`; may be empty.
            message: A sentence; may be empty.
            retry_after_s: Seconds from the Retry-After header; 0 without one.
            what: The request, such as `PATCH /api/v1/nodes/n1`.
        """
        text = f"{what}: {status} {reason} {message}".strip(": ")
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class UnauthorizedError(ApiError):
    """401."""


class ForbiddenError(ApiError):
    """403."""


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: another version, another UID, or a name that is taken."""


class GoneError(ApiError):
    """410: list again."""


class InvalidError(ApiError):
    """422."""


class TooManyRequestsError(ApiError):
    """429."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}

#: An error page of a proxy may be long; its beginning says enough.
_MESSAGE_CHARACTERS = 500
_REASON_CHARACTERS = 100


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error answer, and the object of a watch's ERROR event."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


def api_error(
    status: int, body: bytes, *, what: str, retry_after_s: float = 0.0
) -> ApiError:
    """Return the error for an answer, of the class that its status calls for.

    Args:
        status: The HTTP status; 0 when only the body knows (a watch's ERROR event).
        body: A Status object, or whatever a proxy in between wrote; may be empty.
        what: The request, such as `GET /api/v1/pods`.
        retry_after_s: Seconds from the Retry-After header; 0 without one.
    """
    try:
        said = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:  # a proxy's page, not the API server's Status
        said = Status(message=body[:_MESSAGE_CHARACTERS].decode(errors="replace"))
    code = status or said.code or 500
    return _BY_STATUS.get(code, ApiError)(
        code,
        (said.reason or "")[:_REASON_CHARACTERS],
        (said.message or "")[:_MESSAGE_CHARACTERS],
        retry_after_s=retry_after_s,
        what=what,
    )
