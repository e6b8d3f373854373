"""What faults of switches mean for a node."""

from agent.devices.reading import SwitchFault
from agent.health import switches
from agent.health.switches import BUILT_IN, SwitchLevel


def port_down(port: int, chip: int = 0) -> SwitchFault:
    return SwitchFault(code="[0x08520003,na,L2,na]", peer=2, chip=chip, port=port)


def worst(*faults: SwitchFault) -> SwitchLevel | None:
    return switches.worst_level(faults, BUILT_IN)


def test_a_node_without_faults_has_no_level() -> None:
    assert worst() is None


def test_the_worst_fault_is_the_nodes_level() -> None:
    mild = SwitchFault(code="[0x00f103b6,155908,na,na]")
    severe = SwitchFault(code="[0x00F103B0,155907,na,na]")

    assert worst(mild) is SwitchLevel.SUB_HEALTH
    assert worst(mild, severe) is SwitchLevel.SEPARATE


def test_a_code_in_no_list_is_not_the_nodes() -> None:
    strange = SwitchFault(code="[0x00000001,na,na,na]")

    assert worst(strange) is SwitchLevel.NOT_HANDLED


def test_a_switch_chip_is_cut_off_when_all_its_ports_upwards_are_down() -> None:
    most = [port_down(port) for port in range(15)]

    assert worst(*most) is SwitchLevel.NOT_HANDLED
    others = port_down(3), port_down(15, chip=1)
    assert worst(*most, *others) is SwitchLevel.NOT_HANDLED
    assert worst(*most, port_down(15)) is SwitchLevel.SEPARATE
