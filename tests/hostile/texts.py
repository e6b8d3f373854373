"""Parsers of annotations, ConfigMaps and of files that people and agents write."""

import asyncio
import atexit
import json
import shutil
import tempfile
import zlib
from functools import partial
from pathlib import Path

from agent import settings as agent_settings
from agent.devices.simulated import file as driver_file
from agent.journal import file
from agent.journal.file import UnusableError
from extender import settings as extender_settings
from extender.cache.node_report import report_of
from kube.credentials import REREAD_S, FileTokens, from_url, kubeconfig
from kube.errors import CredentialsError
from sandbox.scenario import parse as scenario
from sandbox.scenario.parse import ScenarioError
from scheduler_core.documents.reader import DocumentError
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.snapshot import batch, job
from scheduler_core.snapshot import document as snapshot_document
from scheduler_core.wire import annotations, deviceinfo, inventory, switches
from scheduler_core.wire.annotations import WireError
from service import endpoints
from service.settings import SettingsError, load
from tests.hostile.row import OF_YAML, Row
from tests.hostile.seeds import (
    CA,
    CASE,
    DRIVER_FILE,
    JOB,
    JOURNAL,
    KUBECONFIG,
    REPORT,
    SCENARIO,
    SETTINGS,
    SNAPSHOT,
    TOKEN,
    TORS,
)

_FOLDER = Path(tempfile.mkdtemp(prefix="hostile-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def _text(content: bytes) -> str:
    """As a hand that writes no UTF-8 would give it: half surrogates included."""
    return content.decode(errors="surrogateescape")


def _file(name: str, content: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(content)
    return path


def _problems(error: Exception) -> tuple[str, ...]:
    assert isinstance(error, (DocumentError, SettingsError))
    return error.problems


def _claim(content: bytes) -> object:
    text = _text(content)
    resource, _, moment = text.partition(";")
    return annotations.parse_claim(
        {PRODUCT.resource: resource, annotations.PREDICATE_TIME: moment}, PRODUCT
    )


def _snapshot(content: bytes) -> object:
    found = snapshot_document.parse(_text(content))
    made = (snapshot_document.network_of(found), snapshot_document.superpods_of(found))
    return (
        made,
        len(snapshot_document.cluster_of(found)),
        snapshot_document.render(found).encode(),
    )


def _job(content: bytes) -> object:
    found = job.parse(_text(content))
    return found.schema, found.sp_block, found.soft_superpods, found


def _case(content: bytes) -> object:
    answer = batch.answer(_text(content))
    assert len(answer) < 100_000
    return json.loads(answer.encode())


def _resealed(content: bytes) -> object:
    """A body that nobody of ours wrote, under a checksum that is right."""
    header = f"ascend-affinity-journal 1 {zlib.crc32(content):08x} {len(content)}\n"
    return _journal(header.encode() + content)


_journal = partial(file.decode, boot_id="boot-1", node="n1")


def _settings(content: bytes) -> object:
    path = _file("settings.yaml", content)
    return load(agent_settings.Settings, ["--config", str(path)], {})


def _flags(content: bytes) -> object:
    words = _text(content).split("\n")
    asked = {"-h", "--help", "--version"}
    words = [word for word in words if word not in asked]  # they end the program
    return load(agent_settings.Settings, words, {"NODE_NAME": "n1"})


def _environment(content: bytes) -> object:
    names = ("LISTEN", "AGENT_SILENT_S", "LOG_LEVEL", "SELF_MAINTAIN_AVAILABLE_CARD")
    values = _text(content).split("\n")
    environ = {
        f"ASCEND_EXTENDER_{name}": value
        for name, value in zip(names, values, strict=False)
    }
    found = load(extender_settings.Settings, [], environ)
    return endpoints.parse_listen(found.listen)


class _Rotated:
    """A token's file: read once when it was good, then again and again."""

    def __init__(self) -> None:
        self._path = _file("token-rotated", b"eyJhbGciOi.c2ln\n")
        self._now = 0.0
        self._tokens = FileTokens(self._path, clock=lambda: self._now)

    def read(self, content: bytes) -> object:
        """Whatever comes, what was good stays or something good comes."""
        self._path.write_bytes(content)
        self._now += REREAD_S
        token = asyncio.run(self._tokens.token())
        assert token.isprintable()
        assert token.isascii()
        assert token
        return token


def _token(content: bytes) -> object:
    return FileTokens(_file("token", content))


def _authority(content: bytes) -> object:
    folder = _FOLDER / "service-account"
    folder.mkdir(exist_ok=True)
    (folder / "token").write_bytes(TOKEN)
    (folder / "ca.crt").write_bytes(content)
    return from_url("https://127.0.0.1:6443", folder)


def _url(content: bytes) -> object:
    return from_url(_text(content))


def _kubeconfig(content: bytes) -> object:
    return kubeconfig(_file("kubeconfig", content))


def _report(content: bytes) -> object:
    info, _, affinity = _text(content).partition("\n")
    return report_of(info, affinity, PRODUCT)


def _dumped(document: object) -> bytes:
    return json.dumps(document).encode()


ROWS: tuple[Row, ...] = (
    Row(
        name="annotation: chips",
        read=lambda content: annotations.parse_chips(_text(content), PRODUCT),
        seeds=(b"Ascend910-0,Ascend910-1",),
        errors=(WireError,),
    ),
    Row(
        name="annotation: predicate-time",
        read=lambda content: annotations.parse_predicate_time(_text(content)),
        seeds=(b"1790000000000000000",),
        errors=(WireError,),
    ),
    Row(
        name="annotations: claim",
        read=_claim,
        seeds=(b"Ascend910-0,Ascend910-1;18446744073709551615",),
        errors=(WireError,),
    ),
    Row(
        name="annotation: baseDeviceInfos",
        read=lambda content: inventory.parse(_text(content), PRODUCT),
        seeds=(inventory.render(range(8), PRODUCT).encode(),),
        errors=(WireError,),
    ),
    Row(
        name="ConfigMap: DeviceInfoCfg",
        read=lambda content: deviceinfo.parse_device_info(_text(content), PRODUCT),
        seeds=(REPORT[deviceinfo.DEVICE_INFO_KEY].encode(),),
        errors=(WireError,),
    ),
    Row(
        name="ConfigMap: AscendAffinity",
        read=lambda content: deviceinfo.parse_affinity(_text(content), PRODUCT),
        seeds=(REPORT[deviceinfo.AFFINITY_KEY].encode(),),
        errors=(WireError,),
    ),
    Row(
        name="ConfigMap: CheckCode",
        read=lambda content: deviceinfo.read_sealed_time(_text(content)),
        seeds=(REPORT[deviceinfo.DEVICE_INFO_KEY].encode(),),
    ),
    Row(
        name="ConfigMap: as the extender reads it",
        read=_report,
        seeds=(REPORT[deviceinfo.DEVICE_INFO_KEY].encode(),),
        errors=(WireError,),
    ),
    Row(
        name="ConfigMap: basic-tor-node-cm",
        read=lambda content: switches.parse(_text(content), {"1.1.0.0": "node-1"}),
        seeds=(_dumped(TORS),),
        errors=(WireError,),
    ),
    Row(
        name="file: snapshot",
        read=_snapshot,
        seeds=(_dumped(SNAPSHOT),),
        errors=(DocumentError,),
        problems=_problems,
    ),
    Row(
        name="file: job",
        read=_job,
        seeds=(_dumped(JOB),),
        errors=(DocumentError,),
        problems=_problems,
    ),
    Row(name="lines: place --batch", read=_case, seeds=(_dumped(CASE),)),
    Row(
        name="file: simulated driver",
        read=lambda content: driver_file.parse(_text(content)),
        seeds=(DRIVER_FILE,),
        errors=(DocumentError,),
        problems=_problems,
        leaves=OF_YAML,
        is_slow=True,
    ),
    Row(
        name="file: scenario",
        read=lambda content: scenario.read(_text(content)),
        seeds=(SCENARIO,),
        errors=(ScenarioError,),
        problems=lambda error: tuple(str(error).split("\n")),
        leaves=OF_YAML,
        is_slow=True,
    ),
    Row(
        name="file: journal",
        read=_journal,
        seeds=(JOURNAL,),
        errors=(UnusableError,),
    ),
    Row(
        name="file: journal, checksum right",
        read=_resealed,
        seeds=(JOURNAL.partition(b"\n")[2],),
        errors=(UnusableError,),
    ),
    Row(
        name="settings: file",
        read=_settings,
        seeds=(SETTINGS,),
        errors=(SettingsError,),
        problems=_problems,
        leaves=OF_YAML,
        is_slow=True,
    ),
    Row(
        name="settings: flags",
        read=_flags,
        seeds=(
            b"--mode=standalone\n--numa-topology\n--driver-poll-s\n0.5\n--listen=:1",
        ),
        errors=(SettingsError,),
        problems=_problems,
    ),
    Row(
        name="settings: environment",
        read=_environment,
        seeds=(b"127.0.0.1:80\n900\ninfo\ntrue",),
        errors=(SettingsError,),
        problems=_problems,
    ),
    Row(
        name="file: token",
        read=_token,
        seeds=(TOKEN,),
        errors=(CredentialsError,),
    ),
    Row(name="file: token, rotated", read=_Rotated().read, seeds=(TOKEN,)),
    Row(
        name="file: certificate authority",
        read=_authority,
        seeds=(CA.encode(),),
        errors=(CredentialsError,),
    ),
    Row(
        name="file: kubeconfig",
        read=_kubeconfig,
        seeds=(KUBECONFIG,),
        errors=(CredentialsError,),
        leaves=OF_YAML,
        is_slow=True,
    ),
    Row(
        name="setting: URL of the API server",
        read=_url,
        seeds=(b"https://10.0.0.1:6443",),
        errors=(CredentialsError,),
    ),
)
