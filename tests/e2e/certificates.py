"""Keys, certificates, tokens and kubeconfigs of one cluster; each run has its own."""

import secrets
from pathlib import Path

from tests.e2e import configurations
from tests.e2e.commands import run
from tests.e2e.places import (
    API_PORT,
    API_SERVICE_ADDRESS,
    NODE,
    SIMULATED_NODES,
    Places,
)

#: user → name and groups at the API server
_USERS = {
    "admin": ("admin", "system:masters"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "scheduler": ("system:kube-scheduler", ""),
    "controller-manager": ("system:kube-controller-manager", ""),
    **{name: (f"system:node:{name}", "system:nodes") for name in SIMULATED_NODES},
}


def make(places: Places, address: str) -> None:
    """Write everything that proves who somebody is.

    Args:
        places: Where to.
        address: The node's address, at which the API server serves.
    """
    folder = places.certificates
    folder.mkdir(parents=True, mode=0o700)
    _authority(folder)
    names = f"IP:{address},IP:127.0.0.1,IP:{API_SERVICE_ADDRESS},DNS:localhost"
    services = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    _signed(folder, "apiserver", "/CN=kube-apiserver", f"{names},{services}")
    # As whom the API server asks a kubelet for logs and to run commands.
    _signed(folder, "to-kubelet", "/O=system:masters/CN=kube-apiserver", "DNS:none")
    run("openssl", "genrsa", "-out", folder / "accounts.key", "2048")
    tokens = {user: secrets.token_urlsafe(24) for user in _USERS}
    rows = [
        f'{tokens[user]},{name},{user},"{groups}"'
        for user, (name, groups) in _USERS.items()
    ]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n", encoding="ascii")
    server, authority = f"https://{address}:{API_PORT}", folder / "ca.crt"
    for user, token in tokens.items():
        path = places.kubeconfig(user)
        path.write_text(
            configurations.kubeconfig(user, token, server=server, authority=authority),
            encoding="utf-8",
        )
        path.chmod(0o600)


def _authority(folder: Path) -> None:
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
        *("ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=e2e"),
        *("-keyout", folder / "ca.key", "-out", folder / "ca.crt"),
    )


def _signed(folder: Path, name: str, subject: str, names: str) -> None:
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    run(
        *("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt"),
        *("ec_paramgen_curve:P-256", "-nodes", "-subj", subject),
        *("-keyout", folder / f"{name}.key", "-out", request),
    )
    usage = "extendedKeyUsage=serverAuth,clientAuth"
    extensions.write_text(f"subjectAltName={names}\n{usage}\n", encoding="ascii")
    run(
        *("openssl", "x509", "-req", "-days", "30", "-in", request),
        *("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial"),
        *("-extfile", extensions, "-out", folder / f"{name}.crt"),
    )
