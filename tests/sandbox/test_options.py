import re
import shlex
from pathlib import Path

import pytest

from sandbox import options
from sandbox.options import Options, OptionsError, parse
from sandbox.world import Cards, Machine
from scheduler_core.products import table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
#: Arguments of `ascend-sandbox up`
SHOWN = [
    *re.findall(r'^make sandbox ARGS="(.+)"$', README, re.MULTILINE),
    *re.findall(r"^  ascend-sandbox up (.+)$", options._EXAMPLES, re.MULTILINE),
]


def _products(*words: str) -> list[tuple[str, str]]:
    return [(each.name, each.product) for each in parse(["up", *words]).machines]


def test_the_demo_has_no_options() -> None:
    assert parse(["demo"]) == Options(play="demo")


def test_three_training_servers_are_what_you_get() -> None:
    assert parse(["up"]) == Options(
        play="up", machines=tuple(Machine(name=f"node-{i}") for i in (1, 2, 3))
    )


def test_the_last_product_is_that_of_all_remaining_nodes() -> None:
    words = ("--nodes", "3", "--product", "atlas-a3-16", "--product", "atlas-a2-8")

    assert _products(*words) == [
        ("node-1", "atlas-a3-16"),
        ("node-2", "atlas-a2-8"),
        ("node-3", "atlas-a2-8"),
    ]


@pytest.mark.parametrize("shown", SHOWN)
def test_what_pages_and_help_show_can_be_said(
    shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    assert parse(["up", *shlex.split(shown)]).machines


def test_the_port_is_the_servers() -> None:
    assert parse(["up", "--port", "8001"]).port == 8001


def test_what_is_broken_from_the_beginning_is_a_fault_of_the_vocabulary() -> None:
    words = ("--fault", "chip-broken node=node-3 chips=0,3", "--fault", "api-down")

    chips, away = parse(["up", *words]).faults

    assert (chips.kind.name, chips.values, chips.for_s) == (
        "chip-broken",
        {"node": "node-3", "chips": (0, 3)},
        None,
    )
    assert (away.kind.name, away.for_s) == ("api-down", None)


def test_a_driver_file_says_which_product_it_describes(tmp_path: Path) -> None:
    file = tmp_path / "driver.yaml"
    file.write_text("product: atlas-a2-8\nfaults: []\n")

    machines = parse(["up", "--nodes", "2", "--driver-file", f"node-2={file}"]).machines

    assert machines == (
        Machine(name="node-1"),
        Machine(name="node-2", product="atlas-a2-8", driver_file=file),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--product", "x"], "no such product: 'x'; there are atlas-800-training"),
        (
            ["--nodes", "1", "--product", "a300t", "--product", "a300t"],
            "2 times --product, for 1 node: at most one for each node",
        ),
        (["--driver-file", "node-9=x"], "expected NODE=FILE with one of node-1"),
        (["--label", "node-9=a=b"], "expected NODE=KEY=VALUE with one of node-1"),
        (["--label", "node-1=a"], "expected NODE=KEY=VALUE with one of node-1"),
        (["--label", "node-1==b"], "expected NODE=KEY=VALUE with one of node-1"),
        (["--driver-file", "x.yaml"], "expected NODE=FILE with one of node-1"),
        (["--driver-file", "node-1=/nowhere"], "No such file"),
        (["--fault", ""], "--fault : expected 'NAME KEY=VALUE …'"),
        (
            ["--fault", "--end api-down"],
            "--fault --end api-down: expected 'NAME KEY=VALUE …'",
        ),
        (
            ["--fault", "api-gone"],
            "--fault api-gone: name: expected one of api-slow, api-down",
        ),
        (
            ["--fault", "kubelet-killed node=node-9 for=x"],
            "node: expected one of node-1, node-2, node-3, found 'node-9'",
        ),
        (
            ["--product", "atlas-a2-8+atlas-310p"],
            "atlas-310p: expected KEY:COUNT, such as atlas-310p:2",
        ),
        (["--product", "atlas-a2-8+x:2"], "no such product: 'x'"),
        (
            ["--product", "atlas-a2-8+atlas-800-training:2"],
            "expected a resource of its own for each line",
        ),
        (
            [
                "--product",
                "atlas-300i-duo-distributed+atlas-300i-duo-distributed:1",
            ],
            "expected a resource of its own for each line",
        ),
        (
            ["--product", "atlas-310p+atlas-310p:1"],
            "expected a resource of its own for each line",
        ),
        (
            ["--product", "atlas-a2-8+atlas-310p:57"],
            "expected ids that each line can have, not 65",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    words: list[str], said: str
) -> None:
    with pytest.raises(OptionsError, match=re.escape(said)):
        parse(["up", *words])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a line `product: atlas-800-training`"),
        ("- a", "expected a line `product: atlas-800-training`"),
        ("product: 7", "expected a line `product: atlas-800-training`"),
        ("product: x", "no such product: 'x'"),
        ("a: [", "while parsing"),
    ],
)
def test_a_driver_file_without_a_product_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "driver.yaml"
    file.write_text(text)

    with pytest.raises(OptionsError, match=said) as refused:
        parse(["up", "--driver-file", f"node-1={file}"])

    assert str(refused.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["sideways"],
        ["up", "--nodes", "0"],
        ["up", "--nodes", "51"],
        ["up", "--nodes", "two"],
        ["up", "--port", "65536"],
        ["demo", "--nodes", "2"],
    ],
)
def test_what_cannot_be_understood_ends_with_the_usual_code(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(words)

    assert end.value.code == 2


def test_help_names_every_product_that_a_node_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["up", "--help"])

    told = capsys.readouterr().out
    assert end.value.code == 0
    assert [row.key for row in table.PRODUCTS if f"  {row.key} " not in told] == []
    assert options._products() in told


@pytest.mark.parametrize("row", table.PRODUCTS, ids=lambda row: row.key)
def test_a_node_can_be_of_each_row_and_has_no_label_that_nobody_asked_for(
    row: table.Product,
) -> None:
    [machine] = parse(["up", "--nodes", "1", "--product", row.key]).machines

    assert machine == Machine(name="node-1", product=row.key, labels={})
    assert machine.offers == {row.resource: row.chip_count}


def test_a_node_has_the_labels_that_are_asked_for() -> None:
    labels = [
        *("--label", "node-2=accelerator-type=half"),
        *("--label", "node-2=zone="),
    ]

    machines = parse(["up", "--nodes", "2", *labels]).machines

    assert [machine.labels for machine in machines] == [
        {},
        {"accelerator-type": "half", "zone": ""},
    ]


def test_a_node_may_have_chips_of_another_line_beside_its_own() -> None:
    asked = parse(
        ["up", "--nodes", "2", "--product", "atlas-800-training+atlas-310p:2"]
    )

    cards = (Cards("atlas-310p", 2),)
    assert asked.machines == tuple(
        Machine(name=f"node-{n}", beside=cards) for n in (1, 2)
    )
    assert asked.machines[0].description == (
        "product: atlas-800-training\n"
        "beside:\n"
        "  - {product: atlas-310p, chips: [8, 9]}\n"
    )
    assert asked.machines[0].offers == {
        "huawei.com/Ascend910": 8,
        "huawei.com/Ascend310P": 2,
    }
