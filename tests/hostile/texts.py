"""Parsers of annotations, ConfigMaps and of files that people and agents write."""

import asyncio
import atexit
import json
import shutil
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from agent import settings as agent_settings
from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi import memory
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.values import ChipState, Survey
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
from scheduler_core.snapshot.values import cluster_of, network_of, superpods_of
from scheduler_core.wire import annotations, deviceinfo, inventory, switches
from scheduler_core.wire.annotations import WireError
from service import endpoints
from service.settings import SettingsError, load
from tests.agent.node import NODE
from tests.hostile.row import OF_YAML, Row, dumped, lines, rows, text_of
from tests.hostile.seeds import (
    CA,
    CASE,
    CHIPS,
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


def _file(name: str, content: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(content)
    return path


def _claim(content: bytes) -> object:
    text = text_of(content)
    resource, _, moment = text.partition(";")
    return annotations.parse_claim(
        {PRODUCT.resource: resource, annotations.PREDICATE_TIME: moment}, PRODUCT
    )


def _snapshot(content: bytes) -> object:
    found = snapshot_document.parse(text_of(content))
    made = (network_of(found), superpods_of(found))
    return (
        made,
        len(cluster_of(found)),
        snapshot_document.render(found).encode(),
    )


def _job(content: bytes) -> object:
    found = job.parse(text_of(content))
    return found.schema, found.sp_block, found.soft_superpods, found


def _case(content: bytes) -> object:
    answer = batch.answer(text_of(content))
    assert len(answer) < 100_000
    return json.loads(answer.encode())


def _resealed(content: bytes) -> object:
    """A body that nobody of ours wrote, under a checksum that is right."""
    header = f"ascend-affinity-journal 2 {zlib.crc32(content):08x} {len(content)}\n"
    return _journal(header.encode() + content)


_journal = partial(file.decode, boot_id="boot-1", node="n1")


def _chips(content: bytes) -> object:
    """What is remembered of chips, and then read of them."""
    known = memory.decode(content, NODE)
    conversion = Conversion(known=known)
    survey = Survey(chips=tuple(ChipState(identity=chip) for chip in CHIPS.identities))
    with suppress(UnknownMachineError):
        conversion.reading(survey, 0, 0.0)
    return memory.encode(conversion.known, NODE)


def _settings(content: bytes) -> object:
    path = _file("settings.yaml", content)
    return load(agent_settings.Settings, ["--config", str(path)], {})


def _flags(content: bytes) -> object:
    words = text_of(content).split("\n")
    asked = {"-h", "--help", "--version"}
    words = [word for word in words if word not in asked]  # they end the program
    return load(agent_settings.Settings, words, {"NODE_NAME": "n1"})


def _environment(content: bytes) -> object:
    names = ("LISTEN", "AGENT_SILENT_S", "LOG_LEVEL", "SELF_MAINTAIN_AVAILABLE_CARD")
    values = text_of(content).split("\n")
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


def _kubeconfig(content: bytes) -> object:
    return kubeconfig(_file("kubeconfig", content))


def _report(content: bytes) -> object:
    info, _, affinity = text_of(content).partition("\n")
    return report_of(info, affinity, PRODUCT)


def _of_text(
    parse: Callable[..., object], *arguments: object
) -> Callable[[bytes], object]:
    """Return an entry point that gives a parser of texts what came as bytes."""
    return lambda content: parse(text_of(content), *arguments)


_INFO = REPORT[deviceinfo.DEVICE_INFO_KEY].encode()

ROWS: tuple[Row, ...] = (
    *rows(
        {
            "annotation: chips": (
                _of_text(annotations.parse_chips, PRODUCT),
                [b"Ascend910-0,Ascend910-1"],
            ),
            "annotation: predicate-time": (
                _of_text(annotations.parse_predicate_time),
                [b"1790000000000000000"],
            ),
            "annotations: claim": (
                _claim,
                [b"Ascend910-0,Ascend910-1;18446744073709551615"],
            ),
            "annotation: baseDeviceInfos": (
                _of_text(inventory.parse, PRODUCT),
                [inventory.render(range(8), PRODUCT).encode()],
            ),
            "annotation: inventory of all lines": (
                _of_text(inventory.parse_lines),
                [inventory.render(range(8), PRODUCT).encode()],
            ),
            "ConfigMap: DeviceInfoCfg": (
                _of_text(deviceinfo.parse_device_info, PRODUCT),
                [_INFO],
            ),
            "ConfigMap: AscendAffinity": (
                _of_text(deviceinfo.parse_affinity, PRODUCT),
                [REPORT[deviceinfo.AFFINITY_KEY].encode()],
            ),
            "ConfigMap: AscendAffinity, its rows": (
                _of_text(deviceinfo.parse_products),
                [REPORT[deviceinfo.AFFINITY_KEY].encode()],
            ),
            "ConfigMap: as the extender reads it": (_report, [_INFO]),
            "ConfigMap: basic-tor-node-cm": (
                _of_text(switches.parse, {"node-1": ("1.1.0.0",)}),
                [dumped(TORS)],
            ),
        },
        WireError,
    ),
    *rows(
        {
            "ConfigMap: CheckCode": (_of_text(deviceinfo.read_sealed_time), [_INFO]),
            "lines: place --batch": (_case, [dumped(CASE)]),
            "file: token, rotated": (_Rotated().read, [TOKEN]),
        },
    ),
    *rows(
        {
            "file: snapshot": (_snapshot, [dumped(SNAPSHOT)]),
            "file: job": (_job, [dumped(JOB)]),
        },
        DocumentError,
    ),
    *rows(
        {
            "file: journal": (_journal, [JOURNAL]),
            "file: journal, checksum right": (
                _resealed,
                [JOURNAL.partition(b"\n")[2]],
            ),
        },
        UnusableError,
    ),
    *rows(
        {"file: chips": (_chips, [memory.encode(CHIPS, NODE)])},
        memory.UnusableError,
    ),
    *rows(
        {
            "settings: flags": (
                _flags,
                [
                    b"--mode=standalone\n--numa-topology\n--driver-poll-s\n0.5\n--listen=:1"
                ],
            ),
            "settings: environment": (_environment, [b"127.0.0.1:80\n900\ninfo\ntrue"]),
        },
        SettingsError,
    ),
    *rows(
        {
            "file: token": (_token, [TOKEN]),
            "file: certificate authority": (_authority, [CA.encode()]),
            "setting: URL of the API server": (
                _of_text(from_url),
                [b"https://10.0.0.1:6443"],
            ),
        },
        CredentialsError,
    ),
    *(
        Row(
            name=name,
            read=read,
            seeds=(seed,),
            errors=(error,),
            leaves=OF_YAML,
            is_slow=True,
        )
        for name, read, seed, error in (
            (
                "file: simulated driver",
                _of_text(driver_file.parse),
                DRIVER_FILE,
                DocumentError,
            ),
            ("settings: file", _settings, SETTINGS, SettingsError),
            ("file: kubeconfig", _kubeconfig, KUBECONFIG, CredentialsError),
        )
    ),
    *rows(
        {"file: scenario": (_of_text(scenario.read), [SCENARIO])},
        ScenarioError,
        problems=lines,
        leaves=OF_YAML,
        is_slow=True,
    ),
)
