import pytest

from scheduler_core.parts import templates
from scheduler_core.parts.templates import CHIPS, Dvpp, UnknownTemplateError
from tests.support.rows import rows

#: kinds of MindCluster's device plugin
KINDS = {
    "vir01": "1c",
    "vir02": "2c",
    "vir02_1c": "2c.1cpu",
    "vir04": "4c",
    "vir04_3c": "4c.3cpu",
    "vir04_3c_ndvpp": "4c.3cpu.ndvpp",
    "vir04_4c_dvpp": "4c.4cpu.dvpp",
    "vir03_1c_8g": "3c.1cpu.8g",
    "vir05_1c_8g": "5c.1cpu.8g",
    "vir05_1c_16g": "5c.1cpu.16g",
    "vir06_1c_16g": "6c.1cpu.16g",
    "vir10_3c_16g": "10c.3cpu.16g",
    "vir10_3c_16g_nm": "10c.3cpu.16g.ndvpp",
    "vir10_3c_32g": "10c.3cpu.32g",
    "vir10_4c_16g_m": "10c.4cpu.16g.dvpp",
    "vir12_3c_32g": "12c.3cpu.32g",
}


def test_each_template_has_the_kind_by_which_its_devices_are_named() -> None:
    found = {t.name: t.kind for chip in CHIPS for t in chip.templates}

    assert found == KINDS


def test_a_name_says_what_a_template_takes() -> None:
    """Cores and, where they stand there, AI CPUs and memory; all or no media units."""
    for chip in CHIPS:
        for template in chip.templates:
            amounts = template.amounts
            numbers = [
                int(part.strip("virgc"))
                for part in template.name.split("_")
                if part.strip("virgc").isdecimal()
            ]
            wanted = [amounts.cores, amounts.ai_cpus, amounts.memory][: len(numbers)]
            media, all_media = amounts[3:], chip.totals[3:]

            assert numbers == wanted, template.name
            assert (template.dvpp is Dvpp.ALL) == (media == all_media), template.name
            if template.may_be_asked:
                assert (template.dvpp is Dvpp.NONE) == (not any(media)), template.name


@rows(
    ("text", "is_name"),
    {
        "plain": ("vir01", True),
        "of a driver's table that no row has": ("vir24_7c_64g", True),
        "media": ("vir04_4c_dvpp", True),
        "one digit": ("vir1", False),
        "unknown end": ("vir01_x", False),
        "empty": ("", False),
        "line end": ("vir01\n", False),
    },
)
def test_names_of_templates_are_known_by_their_form(text: str, is_name: bool) -> None:
    assert templates.is_template_name(text) == is_name


def test_a_template_that_a_chip_has_not_is_named_with_those_it_has() -> None:
    chip = templates.by_key("910B3")
    assert chip is not None
    with pytest.raises(UnknownTemplateError) as caught:
        chip.template("vir01")

    assert str(caught.value) == (
        "template of 910B3: expected one of vir05_1c_16g, vir10_3c_32g, found 'vir01'"
    )
