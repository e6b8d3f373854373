"""Settings that may change while the extender runs, in a ConfigMap.

The keys are those that MindCluster's scheduler has in its `init-params`, so that what
an operator has there can be copied. What is wrong takes no effect at all, not even in
part: the settings before it stay in force, and the ConfigMap gets an event that says
what is wrong, and which these are. Without the ConfigMap the program's own settings
hold. They do as well for one that starts, or begins to lead, on a wrong ConfigMap: it
cannot know what stood there before, and a cluster that schedules by its own settings
is better than one that does not.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from extender.planning.topology import Rules
from extender.settings import Settings
from kube.events import Regarding
from kube.objects import ConfigMap
from kube.reflector import Change, Deleted, Synced, Upserted
from scheduler_core.placement.job_rules import Profile
from scheduler_core.topology.leaves import Version
from service.quote import shown, shown_key

log = logging.getLogger(__name__)

#: The ConfigMap, in the namespace of the agents' reports.
NAME = "ascend-extender-settings"
#: More nodes than a SuperPoD will ever have.
_NODES_MOST = 100_000
#: Things that are wrong and are told; an event has little room.
_TOLD = 3
#: What is in force beside a wrong ConfigMap.
_AS_BEFORE = "The settings before it stay in force"
_AS_TOLD = (
    "What the program was told at its start is in force, and not what this ConfigMap "
    "may have said before"
)
#: MindCluster's settings for what this program does not do, or always does.
IDLE = frozenset(
    {
        "forceEnqueue",
        "grace-over-time",
        "prefer-previous-node",
        "presetVirtualDevice",
        "resource-level-config",
        "useClusterInfoManager",
    }
)


class UnusableError(ValueError):
    """The ConfigMap says something that cannot be; the text has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustable:
    """What may change while the extender runs."""

    #: whether free chips follow from inventory, health and pods, or from the list
    self_maintain: bool = True
    rules: Rules = field(default_factory=Rules)


def adjustable(settings: Settings) -> Adjustable:
    """What the program was told of that a ConfigMap may say otherwise."""
    return Adjustable(
        self_maintain=settings.self_maintain_available_card,
        rules=Rules(
            profile=Profile(settings.job_rules),
            superpod_size=settings.superpod_size,
            superpod_reserve=settings.reserve_nodes,
            switches=Version(settings.nslb_version),
            shared_leaves=settings.shared_tor_num,
        ),
    )


#: Says what one key's text means, with the settings before it.
_Reader = Callable[[str, Adjustable], Adjustable]


def read(texts: Mapping[str, str], told: Adjustable) -> Adjustable:
    """The settings that a ConfigMap asks for.

    Args:
        texts: its data.
        told: what holds for keys that are not there.

    Raises:
        UnusableError: a key or a text is none of those that there are.
    """
    found, wrong = told, []
    for key, text in sorted(texts.items()):
        if key in IDLE:
            continue
        reader = _READERS.get(key)
        if reader is None:
            wrong.append(
                f"{shown_key(key)}: no such key, there are {', '.join(_READERS)}"
            )
            continue
        try:
            found = reader(text, found)
        except ValueError as error:
            wrong.append(f"{key}: expected {error}, found {shown(text)}")
    rules = found.rules
    if not wrong and rules.superpod_reserve >= rules.superpod_size:
        wrong.append(
            f"reserve-nodes: expected fewer than the {rules.superpod_size} of "
            f"super-pod-size, found {rules.superpod_reserve}"
        )
    if wrong:
        more = [f"and {len(wrong) - _TOLD} more"] if len(wrong) > _TOLD else []
        raise UnusableError("; ".join([*wrong[:_TOLD], *more]))
    return found


class Live:
    """Which settings are in force. Source of truth: the ConfigMap, and `told`."""

    def __init__(
        self,
        told: Adjustable,
        *,
        adjust: Callable[[Adjustable], None],
        say: Callable[[Regarding, str, str], None],
    ) -> None:
        """Begin with the program's own settings, which are in force already.

        Args:
            told: what holds without the ConfigMap.
            adjust: puts others into force.
            say: gets the ConfigMap, a reason and a sentence, for an event on it.
        """
        self._told = told
        self._adjust = adjust
        self._say = say
        self.now = told
        #: whether a ConfigMap says what is in force
        self._is_said = False
        #: whether the ConfigMap that is there could not be read
        self.is_unusable = False

    def learn(self, change: Change[ConfigMap]) -> None:
        """Follow the ConfigMap."""
        match change:
            case Upserted(obj=found):
                self._read(found)
            case Deleted():
                self._is_said = False
                self._put(self._told)
            case Synced():
                pass

    def _read(self, found: ConfigMap) -> None:
        meta, texts = found.metadata, found.data or {}
        about = Regarding(
            kind="ConfigMap", name=meta.name, namespace=meta.namespace, uid=meta.uid
        )
        try:
            wanted = read(texts, self._told)
        except UnusableError as error:
            self.is_unusable = True
            stays = _AS_BEFORE if self._is_said else _AS_TOLD
            text = f"{error}. {stays}: {sentence(self.now)}"
            log.warning("settings not taken", extra={"why": text})
            self._say(about, "AscendSettingsUnusable", text)
            return
        self._is_said = True
        idle = sorted(texts.keys() & IDLE)
        if idle:
            log.info("settings that change nothing here", extra={"keys": idle})
        if self._put(wanted):
            self._say(about, "AscendSettingsTaken", f"in force: {sentence(wanted)}")

    def _put(self, wanted: Adjustable) -> bool:
        """Put settings into force; whether they are others than before."""
        self.is_unusable = False
        if wanted == self.now:
            return False
        self.now = wanted
        log.info("settings have changed", extra={"now": sentence(wanted)})
        self._adjust(wanted)
        return True


def sentence(of: Adjustable) -> str:
    """All of them in a line, by the keys of the ConfigMap."""
    rules = of.rules
    listed = {
        "self-maintain-available-card": str(of.self_maintain).lower(),
        "job-rules": rules.profile.value,
        "super-pod-size": rules.superpod_size,
        "reserve-nodes": rules.superpod_reserve,
        "nslb-version": rules.switches.value,
        "shared-tor-num": rules.shared_leaves,
    }
    return ", ".join(f"{key} {value}" for key, value in listed.items())


def _self_maintain(text: str, found: Adjustable) -> Adjustable:
    return replace(found, self_maintain=_one_of(text, "true", "false") == "true")


def _job_rules(text: str, found: Adjustable) -> Adjustable:
    profile = Profile(_one_of(text, *(each.value for each in Profile)))
    return replace(found, rules=replace(found.rules, profile=profile))


def _superpod_size(text: str, found: Adjustable) -> Adjustable:
    size = _number(text, least=1)
    return replace(found, rules=replace(found.rules, superpod_size=size))


def _reserve(text: str, found: Adjustable) -> Adjustable:
    nodes = _number(text, least=0)
    return replace(found, rules=replace(found.rules, superpod_reserve=nodes))


def _switches(text: str, found: Adjustable) -> Adjustable:
    version = Version(_one_of(text, Version.ONE.value, Version.TWO.value))
    return replace(found, rules=replace(found.rules, switches=version))


def _shared_leaves(text: str, found: Adjustable) -> Adjustable:
    leaves = int(_one_of(text, "1", "2"))
    return replace(found, rules=replace(found.rules, shared_leaves=leaves))


_READERS: Mapping[str, _Reader] = {
    "self-maintain-available-card": _self_maintain,
    "job-rules": _job_rules,
    "super-pod-size": _superpod_size,
    "reserve-nodes": _reserve,
    "nslb-version": _switches,
    "shared-tor-num": _shared_leaves,
}


def _one_of(text: str, *known: str) -> str:
    if text not in known:
        raise ValueError(" or ".join(known))
    return text


def _number(text: str, *, least: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_NODES_MOST))
    if not is_number or not least <= int(text) <= _NODES_MOST:
        raise ValueError(f"a whole number from {least} to {_NODES_MOST}")
    return int(text)
