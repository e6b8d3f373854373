"""What comes with us: pinned, and free to be shipped."""

from tests import dependencies
from tests.dependencies import Audit

#: As the packages call them. None asks anything of who ships or links.
PERMISSIVE = {
    "3-Clause BSD License",
    "Apache Software License",
    "Apache-2.0",
    "Apache-2.0 AND BSD-2-Clause",
    "Apache-2.0 AND MIT",
    "BSD-3-Clause",
    "MIT",
    "MIT License",
    "PSF-2.0",
    "Python Software Foundation License",
}


def test_everything_that_is_installed_is_pinned_at_its_version() -> None:
    pinned = dependencies.pinned()

    assert {
        name: (version, pinned.get(name))
        for name, version in dependencies.installed().items()
        if pinned.get(name) != version
    } == {}


def test_what_is_shipped_may_be_shipped() -> None:
    shipped = dependencies.shipped()

    assert {"aiohttp", "grpcio", "yarl"} <= {*shipped}
    assert "pytest" not in shipped
    assert {
        name: dependencies.licence(name)
        for name in shipped
        if dependencies.licence(name) not in PERMISSIVE
    } == {}


def test_a_hole_is_named() -> None:
    hole = {"id": "PYSEC-1", "fix_versions": ["2"], "description": "bad"}
    row = {"name": "a", "version": "1", "vulns": [hole]}

    audit = dependencies.read({"dependencies": [row], "fixes": []})

    assert audit == Audit(looked_up=("a",), holes=("a 1: PYSEC-1",))
    assert dependencies.told(audit, ["a"]).splitlines()[1:] == ["a 1: PYSEC-1"]


def test_what_was_not_looked_up_is_no_clean_bill() -> None:
    fine = {"name": "A_b", "version": "1", "vulns": []}
    skipped = {"name": "c", "skip_reason": "not found on PyPI"}

    audit = dependencies.read({"dependencies": [fine, skipped], "fixes": []})

    assert audit == Audit(looked_up=("A_b",))
    assert dependencies.told(audit, ["a-b", "c"]).startswith("NOT AUDITED: 1 of the 2")
    assert dependencies.told(audit, ["a-b"]).startswith("No hole is known in the 1")
    assert dependencies.told(Audit(), ["a-b"]).startswith("NOT AUDITED: 1 of the 1")
