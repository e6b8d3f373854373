"""Errors of requests to the API server.

KubeError                     any of these
├── CredentialsError          no server, token or certificate to start with
├── UnreachableError          no answer: network, timeout, broken stream
│   └── SilentError           a silent watch; its connection may be dead
├── MalformedError            an answer that does not follow the API
├── StaleError                a list that is older than the cache
├── UnservedError             an API group in no version that we can read
└── ApiError                  the API server refused: status, reason, message
    ├── UnauthorizedError     401  token missing, expired or unknown
    ├── ForbiddenError        403  RBAC lacks a verb
    ├── NotFoundError         404
    ├── ConflictError         409  other version, other UID, exists already
    ├── GoneError             410  the version is no longer in the history
    ├── InvalidError          422  the object breaks a rule
    └── TooManyRequestsError  429  wait `retry_after_s`
"""

import msgspec

from service.decoding import DECODE_ERRORS


class KubeError(Exception):
    """Failure of a request to the API server, of any kind."""

    #: Seconds that the server asks to wait before the next try; 0 for none.
    retry_after_s: float = 0.0


class CredentialsError(KubeError):
    """Missing or unusable credentials; the text has one problem a line."""


class UnreachableError(KubeError):
    """Request without an answer; its effect is unknown."""


class SilentError(UnreachableError):
    """Watch that was silent for longer than the interval of bookmarks."""


class MalformedError(KubeError):
    """Answer that does not decode."""


class StaleError(KubeError):
    """List whose version is older than one that was seen before."""


class UnservedError(KubeError):
    """API group that the API server serves in no version that we can read."""


class ApiError(KubeError):
    """Refusal by the API server, with its status, reason and message."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        cause: str = "",
        retry_after_s: float = 0.0,
        request_line: str = "",
    ) -> None:
        """Store the fields of the server's Status object.

        Args:
            status: HTTP status, or the code inside a watch's ERROR event.
            reason: One word, such as `AlreadyExists`; may be empty.
            message: A sentence; may be empty.
            cause: Message of its first cause: a disruption budget, perhaps.
            retry_after_s: Seconds of the Retry-After header; 0 without one.
            request_line: Method and path, such as `PATCH /api/v1/nodes/n1`.
        """
        text = f"{request_line}: {status} {reason} {message}".strip(": ")
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.message = message
        self.cause = cause
        self.retry_after_s = retry_after_s


class UnauthorizedError(ApiError):
    """401: the token is missing, expired or unknown."""


class ForbiddenError(ApiError):
    """403: RBAC lacks a verb."""


class NotFoundError(ApiError):
    """404: the object or its kind does not exist."""


class ConflictError(ApiError):
    """409: another version, another UID, or a name that is taken."""


class GoneError(ApiError):
    """410: the version is no longer in the server's history."""


class InvalidError(ApiError):
    """422: the object breaks a rule."""


class TooManyRequestsError(ApiError):
    """429: the server is overloaded, or a disruption budget is used up."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}

#: A proxy's error page may be long; its beginning suffices.
_MESSAGE_CHARACTERS = 500
_REASON_CHARACTERS = 100


class _Cause(msgspec.Struct, frozen=True, kw_only=True):
    message: str | None = None


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    causes: list[_Cause] | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an error answer, and object of a watch's ERROR event."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None

    @property
    def cause(self) -> str:
        """Message of the first cause; "" without one."""
        causes = (self.details and self.details.causes) or []
        return (causes[0].message or "") if causes else ""


def api_error(
    status: int, body: bytes, *, request_line: str, retry_after_s: float = 0.0
) -> ApiError:
    """Return the error for an answer; its class follows from the status.

    Args:
        status: HTTP status; 0 takes the body's code (a watch's ERROR event).
        body: Status object, or any text of a proxy; may be empty.
        request_line: Method and path, such as `GET /api/v1/pods`.
        retry_after_s: Seconds of the Retry-After header; 0 without one.
    """
    try:
        body_status = msgspec.json.decode(body, type=Status)
    except DECODE_ERRORS:  # a proxy's page, not the API server's Status
        body_status = Status(
            message=body[:_MESSAGE_CHARACTERS].decode(errors="replace")
        )
    code = status or body_status.code or 500
    return _BY_STATUS.get(code, ApiError)(
        code,
        (body_status.reason or "")[:_REASON_CHARACTERS],
        (body_status.message or "")[:_MESSAGE_CHARACTERS],
        cause=body_status.cause[:_MESSAGE_CHARACTERS],
        retry_after_s=retry_after_s,
        request_line=request_line,
    )
