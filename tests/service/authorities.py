"""Certificates for tests, each its own authority, good for 127.0.0.1 and `api.test`."""

import subprocess
from pathlib import Path

_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    " -addext subjectAltName=IP:127.0.0.1,DNS:api.test -subj /CN={name}"
    " -keyout {name}.key -out {name}.crt"
)


def make(folder: Path, name: str) -> tuple[Path, Path]:
    """Certificate and key of that name."""
    command = _MAKE.format(name=name).split()
    subprocess.run(  # noqa: S603  # our own words
        command, cwd=folder, check=True, capture_output=True
    )
    return folder / f"{name}.crt", folder / f"{name}.key"
