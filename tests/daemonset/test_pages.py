"""The kustomizations that pages show can be rendered beside `daemonset/`."""

import os
import re
from pathlib import Path

import pytest

from tests.daemonset.rendered import DAEMONSET, ROOT, kustomize, needs_kubectl

KUSTOMIZATION = re.compile(
    r"^```yaml\n(apiVersion: kustomize\.config\.k8s\.io.*?)^```",
    re.MULTILINE | re.DOTALL,
)
SHOWN = {
    f"{page.name}-{number}": text
    for page in sorted(ROOT.glob("docs/*.md"))
    for number, text in enumerate(KUSTOMIZATION.findall(page.read_text()), start=1)
}


def test_two_pages_show_one() -> None:
    assert {"install.md-1", "shadow.md-1"} <= SHOWN.keys()


@needs_kubectl
@pytest.mark.parametrize("name", SHOWN)
def test_a_kustomization_of_a_page_can_be_rendered(tmp_path: Path, name: str) -> None:
    text = SHOWN[name].replace("../daemonset", os.path.relpath(DAEMONSET, tmp_path))
    (tmp_path / "kustomization.yaml").write_text(text)

    kinds = {each["kind"] for each in kustomize(tmp_path)}

    assert "Deployment" in kinds
