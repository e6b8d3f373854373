import re

import pytest

from scheduler_core import products
from scheduler_core.errors import UnknownProductError
from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from tests.machines import RINGS, mask


def test_groups_are_the_rings_of_the_machine() -> None:
    assert PRODUCT.groups == tuple(mask(ring) for ring in RINGS)
    assert PRODUCT.all_chips == 0xFF


@pytest.mark.parametrize("row", products.PRODUCTS, ids=lambda row: row.key)
def test_every_row_is_sound(row: products.Product) -> None:
    assert row.chip_count % row.group_size == 0
    assert row.counts == tuple(sorted(set(row.counts)))
    assert all(
        sorted(left) == [n for n in range(1, row.group_size + 1) if n in left]
        and min(left) >= count
        for count, left in (
            (count, sorted(left)) for count, left in row.group_preference.items()
        )
    )
    assert {count for count in row.counts if count <= row.group_size} == set(
        row.group_preference
    )
    assert row.source


def test_keys_are_unique_and_lead_to_their_rows() -> None:
    keys = [row.key for row in products.PRODUCTS]

    assert [products.by_key(key) for key in keys] == list(products.PRODUCTS)


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    message = "product: expected one of atlas-800-training, found 'atlas-900'"
    with pytest.raises(UnknownProductError, match=re.escape(message)) as caught:
        products.by_key("atlas-900")

    assert caught.value.key == "atlas-900"
    assert caught.value.known == ("atlas-800-training",)


@pytest.mark.parametrize(
    ("resource", "labels", "expected"),
    [
        ("huawei.com/Ascend910", {}, PRODUCT),
        ("huawei.com/Ascend910", {"accelerator-type": "module"}, PRODUCT),
        ("huawei.com/Ascend910", {"accelerator-type": "half"}, None),
        ("huawei.com/Ascend910", {"accelerator-type": "module-910b-8"}, None),
        ("huawei.com/Ascend310", {}, None),
    ],
)
def test_the_labels_of_a_node_tell_its_product(
    resource: str, labels: dict[str, str], expected: products.Product | None
) -> None:
    assert products.find(resource, labels) is expected
