"""Table of server types: legal counts, groups and preferences of their chips.

Each row names the source of its numbers. `columns.py` explains the columns, and
`lookup.py` finds the row of a job or a node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from scheduler_core.errors import UnknownProductError
from scheduler_core.products.columns import (
    GroupKind,
    JobRule,
    Network,
    Order,
    Product,
    Way,
)

__all__ = ["ATLAS_800_TRAINING", "PRODUCTS", "GroupKind", "Product", "by_key"]

_AFFINITY = "Affinity Scheduling Description, tables 1 and 2"
_SCORING = "Node Scoring, 'Common Node Selection Principle'"
_MINDCLUSTER = "MindCluster ascend-for-volcano, "


def _ways(
    *parts: tuple[Iterable[int], tuple[Way, ...]],
) -> Mapping[int, tuple[Way, ...]]:
    return MappingProxyType({count: ways for counts, ways in parts for count in counts})


def _tightest(group_size: int) -> Mapping[int, tuple[int, ...]]:
    """Return the preference for the group with the fewest free chips that suffice."""
    sizes = range(1, group_size + 1)
    return MappingProxyType({n: tuple(range(n, group_size + 1)) for n in sizes})


_GROUPS = (Way.GROUPS,)
_LOWEST = (Way.LOWEST,)
_RINGS_OF_FOUR = MappingProxyType({1: (1, 3, 2, 4), 2: (2, 4, 3), 4: (4,)})

ATLAS_800_TRAINING = Product(
    name="Atlas 800 training server",
    key="atlas-800-training",
    servers=(
        "Atlas 800 training server (model 9000)",
        "Atlas 800 training server (model 9010)",
    ),
    networks=(Network.ROCE,),
    resource="huawei.com/Ascend910",
    chip_prefix="Ascend910-",
    chip_count=8,
    group_size=4,
    group_kind=GroupKind.RING,
    ways=_ways(((1, 2, 4, 8), _GROUPS)),
    group_preference=_RINGS_OF_FOUR,
    capacity_staged=True,
    network_health=True,
    job_rule=JobRule.WHOLE_NODES,
    accelerator_types=("", "module"),
    source=(
        "Node Affinity K8s Scheduling Algorithm Design: 'Affinity Policy "
        "Description' (preferences), 'Scenario Classification' (groups A to D), "
        "'Fault Considerations' (capacity 8, then 7, then lower), 'Resource "
        "Application Constraints' (jobs)"
    ),
)

_HALF = replace(
    ATLAS_800_TRAINING,
    name="Atlas 800 training server with 4 chips",
    key="atlas-800-training-half",
    chip_count=4,
    ways=_ways(((1, 2, 4), _GROUPS)),
    job_rule=JobRule.EACH_POD,
    accelerator_types=("half",),
    policies=("chip4-node4",),
    source=_MINDCLUSTER + "half910x4: the matrix of the whole server, one ring",
)

_MODULE_910B = Product(
    name="Atlas A2 server with 8 chips",
    key="atlas-a2-8",
    servers=(
        "Atlas 800T A2 training server",
        "Atlas 800I A2 inference server",
        "A200I A2 Box heterogeneous component",
    ),
    networks=(Network.ROCE, Network.ROCE_SINGLE_LAYER),
    resource="huawei.com/Ascend910",
    chip_prefix="Ascend910-",
    chip_count=8,
    group_size=8,
    group_kind=GroupKind.NONE,
    ways=_ways((range(1, 9), _LOWEST)),
    group_preference=MappingProxyType({}),
    capacity_staged=True,
    network_health=True,
    accelerator_types=("module-910b-8",),
    policies=("chip8-node8",),
    source=f"{_SCORING} (affScoreList); {_MINDCLUSTER}910bx8",
)

_ATLAS_850 = replace(
    _MODULE_910B,
    name="Atlas 850 server",
    key="atlas-850-8",
    servers=("Atlas 850",),
    networks=(),
    accelerator_types=("850-Atlas-8p-8",),
    policies=(),
    source=_MINDCLUSTER + "base policy '850-Atlas-8p-8'",
)

_A300T = replace(
    _MODULE_910B,
    name="server with A300T training cards",
    key="a300t",
    servers=("Atlas 300T training card",),
    networks=(),
    network_health=False,
    accelerator_types=("card",),
    policies=(),
    source=_MINDCLUSTER + "card910x2 (order), base policy 'card' (8 a node at most)",
)

_BOX16 = replace(
    _MODULE_910B,
    name="Atlas 200T A2 Box16",
    key="atlas-a2-box16",
    servers=(
        "Atlas 200T A2 Box16 heterogeneous subrack",
        "Atlas 200I A2 Box16 heterogeneous subrack",
    ),
    networks=(Network.ROCE,),
    chip_count=16,
    group_kind=GroupKind.RING,
    ways=_ways(((*range(1, 9), 16), _GROUPS), ((10, 12, 14), (Way.PAIRS,))),
    group_preference=_tightest(8),
    capacity_staged=False,
    order=Order.MISFIT,
    accelerator_types=("module-910b-16",),
    policies=("chip8-node16",),
    source=f"{_AFFINITY}; {_MINDCLUSTER}module910bx16",
)

_A3_16 = replace(
    _MODULE_910B,
    name="Atlas A3 server with 16 chips",
    key="atlas-a3-16",
    servers=(
        "Atlas 900 A3 SuperPoD",
        "A200T A3 Box8 SuperPoD Server",
        "Atlas 800I A3 SuperPoD Server",
        "Atlas 800T A3 SuperPoD Server",
    ),
    networks=(Network.UNIFIED_BUS,),
    chip_count=16,
    group_size=2,
    group_kind=GroupKind.MODULE,
    ways=_ways(((1, *range(2, 17, 2)), _GROUPS)),
    group_preference=_tightest(2),
    capacity_staged=False,
    job_rule=JobRule.EVEN,
    accelerator_types=("module-a3-16",),
    policies=("module-a3-16", "chip2-node16"),
    source=f"{_AFFINITY}; {_MINDCLUSTER}module910a3x16",
)

_A3_8 = replace(
    _A3_16,
    name="Atlas A3 server with 8 chips",
    key="atlas-a3-8",
    chip_count=8,
    ways=_ways(((1, *range(2, 9, 2)), _GROUPS)),
    accelerator_types=("module-a3-8",),
    policies=("chip2-node8",),
)

_A3_16_SUPERPOD = replace(
    _A3_16,
    name="Atlas A3 server with 16 chips in a SuperPoD",
    key="atlas-a3-16-superpod",
    job_rule=JobRule.SUPERPOD,
    accelerator_types=("module-a3-16-super-pod",),
    policies=("chip2-node16-sp",),
    source=f"{_AFFINITY}; {_MINDCLUSTER}superpod",
)

_A3_8_SUPERPOD = replace(
    _A3_8,
    name="Atlas A3 server with 8 chips in a SuperPoD",
    key="atlas-a3-8-superpod",
    job_rule=JobRule.SUPERPOD,
    accelerator_types=("module-a3-8-super-pod",),
    policies=("chip2-node8-sp",),
    source=f"{_AFFINITY}; {_MINDCLUSTER}superpod",
)

_SUPERPOD_8 = replace(
    _ATLAS_850,
    name="Atlas 850 server in a SuperPoD",
    key="atlas-850-8-superpod",
    networks=(Network.UNIFIED_BUS,),
    capacity_staged=False,
    job_rule=JobRule.SUPERPOD,
    accelerator_types=(),
    policies=("chip8-node8-sp",),
    source=_MINDCLUSTER + "chip8node8sp",
)

_300I_CHIP = Product(
    name="server with 300I cards, by chip",
    key="atlas-300i-chip",
    servers=("Atlas 800 inference server (model 3000) with Atlas 300I cards",),
    resource="huawei.com/Ascend310",
    chip_prefix="Ascend310-",
    chip_count=64,
    group_size=4,
    group_kind=GroupKind.CARD,
    ways=_ways((range(1, 65), (Way.EMPTIEST_FIRST,))),
    group_preference=MappingProxyType({}),
    capacity_staged=False,
    network_health=False,
    job_labels=MappingProxyType({"npu-310-strategy": ("", "chip")}),
    source=f"{_AFFINITY}; {_MINDCLUSTER}chip310x4",
)

_300I_CARD = replace(
    _300I_CHIP,
    name="server with 300I cards, by card",
    key="atlas-300i-card",
    ways=_ways((range(1, 5), _GROUPS)),
    group_preference=MappingProxyType(
        {1: (1, 3, 2, 4), 2: (2, 3, 4), 3: (3, 4), 4: (4,)}
    ),
    job_labels=MappingProxyType({"npu-310-strategy": ("card",)}),
    source=f"{_AFFINITY}; {_MINDCLUSTER}card310x4",
)

_DUO_CARD = replace(
    _300I_CARD,
    name="server with 300I Duo cards, by card",
    key="atlas-300i-duo-card",
    servers=("Atlas 800 inference server (model 3000) with Atlas 300I Duo cards",),
    resource="huawei.com/Ascend310P",
    chip_prefix="Ascend310P-",
    chip_count=32,
    group_size=2,
    ways=_ways(((1, 2), _GROUPS)),
    group_preference=_tightest(2),
    job_labels=MappingProxyType({"duo": ("true",), "npu-310-strategy": ("card",)}),
    source=f"{_AFFINITY}; {_MINDCLUSTER}card310px2",
)

_DUO_DISTRIBUTED = replace(
    _DUO_CARD,
    name="server with 300I Duo cards, distributed inference",
    key="atlas-300i-duo-distributed",
    chip_count=16,
    ways=_ways((range(1, 17), _GROUPS)),
    job_rule=JobRule.ONE_POD,
    job_labels=MappingProxyType(
        {
            "duo": ("true",),
            "npu-310-strategy": ("", "chip"),
            "distributed": ("true",),
        }
    ),
    node_labels=MappingProxyType({"infer-card-type": "card-300i-duo"}),
    source=f"{_AFFINITY}; {_MINDCLUSTER}chip310px2, label distributed=true",
)

_DUO_CHIP = replace(
    _DUO_DISTRIBUTED,
    name="server with 300I Duo cards, by chip",
    key="atlas-300i-duo-chip",
    ways=_ways(
        (range(1, 17), (Way.EMPTIEST_FIRST,)), ((2,), (Way.GROUPS, Way.EMPTIEST_FIRST))
    ),
    job_rule=JobRule.EACH_POD,
    job_labels=MappingProxyType({"duo": ("true",), "npu-310-strategy": ("", "chip")}),
    source=f"{_AFFINITY} (one whole card, odd counts); {_MINDCLUSTER}chip310px2",
)

_310P = replace(
    _300I_CHIP,
    name="server with 310P chips",
    key="atlas-310p",
    servers=("Atlas 300I Pro inference card", "Atlas 300V Pro video analysis card"),
    resource="huawei.com/Ascend310P",
    chip_prefix="Ascend310P-",
    group_size=64,
    group_kind=GroupKind.NONE,
    ways=_ways((range(1, 65), _LOWEST)),
    job_labels=MappingProxyType({}),
    source=f"{_SCORING} (affScoreList); {_MINDCLUSTER}base policy",
)

_MESH_8 = replace(
    _MODULE_910B,
    name="server of 8 chips in meshes of four",
    key="mesh-8",
    servers=(),
    networks=(),
    group_size=4,
    group_kind=GroupKind.MESH,
    ways=_ways(((1, 2, 3, 4, 8), _GROUPS), ((5, 6, 7), (Way.GROUPS, Way.WHOLE_FIRST))),
    group_preference=_tightest(4),
    capacity_staged=False,
    order=Order.SPARE_GROUPS,
    network_health=False,
    accelerator_types=(),
    policies=("chip4-node8",),
    source=_MINDCLUSTER + "chip4nodex",
)

_MESH_16 = replace(
    _MESH_8,
    name="server of 16 chips in meshes of four",
    key="mesh-16",
    chip_count=16,
    ways=_ways(
        (range(1, 17), (Way.GROUPS, Way.WHOLE_FIRST)),
        ((1, 2, 3, 4, 8, 12, 16), _GROUPS),
    ),
    policies=("chip4-node16",),
)

_FLAT_8 = replace(
    _MODULE_910B,
    name="server of 8 chips without groups",
    key="flat-8",
    servers=(),
    networks=(),
    capacity_staged=False,
    network_health=False,
    accelerator_types=(),
    policies=("chip1-node8",),
    source=f"{_SCORING} (affScoreList); {_MINDCLUSTER}base policy",
)

_FLAT_2 = replace(
    _FLAT_8,
    name="server of 2 chips without groups",
    key="flat-2",
    servers=("server with 910B training cards",),
    chip_count=2,
    group_size=2,
    ways=_ways(((1, 2), _LOWEST)),
    accelerator_types=("card-910b-2",),
    policies=("chip1-node2",),
)

_300I_A2 = replace(
    _FLAT_8,
    name="server with 300I A2 cards",
    key="atlas-300i-a2",
    servers=("Atlas 300I A2 inference card",),
    accelerator_types=("card-910b-infer",),
    policies=(),
    source=_MINDCLUSTER + "base policy 'card' (8 a node at most)",
)

_FLAT_16 = replace(
    _FLAT_8,
    name="server of 16 chips without groups",
    key="flat-16",
    chip_count=16,
    group_size=16,
    ways=_ways((range(1, 17), _LOWEST)),
    policies=("chip1-node16",),
)

_910 = (
    *(ATLAS_800_TRAINING, _HALF, _A300T, _MODULE_910B, _ATLAS_850, _BOX16),
    *(_A3_16, _A3_8, _A3_16_SUPERPOD, _A3_8_SUPERPOD, _SUPERPOD_8),
    *(_MESH_8, _MESH_16, _FLAT_2, _FLAT_8, _FLAT_16),
    _300I_A2,
)


def _as_npu(row: Product) -> Product:
    """Return the row for the resource `huawei.com/npu`, which jobs name by policy."""
    return replace(
        row,
        key=f"npu-{row.key}",
        resource="huawei.com/npu",
        chip_prefix="npu-",
        accelerator_types=(),
        node_types=("",) if row is _FLAT_16 else row.accelerator_types,
    )


#: all rows; where several match a job, the first one serves it
PRODUCTS: tuple[Product, ...] = (
    *_910,
    *(_300I_CARD, _300I_CHIP, _DUO_CARD, _DUO_DISTRIBUTED, _DUO_CHIP, _310P),
    *(_as_npu(row) for row in _910 if row.policies),
)

_BY_KEY = {product.key: product for product in PRODUCTS}


def by_key(key: str) -> Product:
    """Return the product with this key in files.

    Raises:
        UnknownProductError: No product has this key.
    """
    try:
        return _BY_KEY[key]
    except KeyError:
        raise UnknownProductError(key, tuple(_BY_KEY)) from None
