"""Settings in the ConfigMap `ascend-extender-settings`, which may change at run time.

The keys are those of MindCluster's `init-params`, so that operators can copy them, and
`job-rules`. If a changed ConfigMap has an error, the settings in force stay in force.
An event on the ConfigMap lists up to three errors, and the settings in force.

The settings from flags, environment and file are in force until the extender has read
this ConfigMap without an error. They are in force again after its deletion. So a wrong
or missing ConfigMap never stops scheduling.
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
from service.quote import quote_key, quote_value

log = logging.getLogger(__name__)

#: Name of the ConfigMap, which is in the namespace of the agents' reports.
NAME = "ascend-extender-settings"
#: Upper limit of numbers of nodes; no SuperPoD has more.
_NODES_MOST = 100_000
#: Errors that an event lists, because its message is short.
_ERRORS_MOST = 3
#: Sentences on the settings in force while the ConfigMap is wrong.
_AS_BEFORE = "The settings before it stay in force"
_AS_STARTED = (
    "The program's own settings are in force, and not those that this ConfigMap may "
    "have had before"
)
#: Keys of MindCluster without effect here: the extender never or always does this.
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
    """Error of the ConfigMap `ascend-extender-settings`: its wrong keys and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSettings:
    """Settings that the ConfigMap `ascend-extender-settings` can change at run time."""

    #: True: free chips follow from inventory, health and pods; False: the list in the
    #: device ConfigMap bounds them as well
    self_maintain: bool = True
    rules: Rules = field(default_factory=Rules)


def from_settings(settings: Settings) -> DynamicSettings:
    """Return the dynamic settings that the extender was started with.

    They are in force while there is no ConfigMap `ascend-extender-settings`.

    Args:
        settings: All settings that the extender was started with.
    """
    return DynamicSettings(
        self_maintain=settings.self_maintain_available_card,
        rules=Rules(
            profile=Profile(settings.job_rules),
            superpod_size=settings.superpod_size,
            superpod_reserve=settings.reserve_nodes,
            switches=Version(settings.nslb_version),
            shared_leaves=settings.shared_tor_num,
        ),
    )


#: Returns the given settings, changed by the value of one key.
_Reader = Callable[[str, DynamicSettings], DynamicSettings]


def parse(texts: Mapping[str, str], defaults: DynamicSettings) -> DynamicSettings:
    """Parse the data of the ConfigMap `ascend-extender-settings` into dynamic settings.

    Args:
        texts: {key: value} of the ConfigMap.
        defaults: Settings whose values are used for keys missing in `texts`.

    Raises:
        UnusableError: A key is unknown or a value is not allowed.
    """
    settings, errors = defaults, []
    for key, text in sorted(texts.items()):
        if key in IDLE:
            continue
        reader = _READERS.get(key)
        if reader is None:
            errors.append(
                f"{quote_key(key)}: no such key, there are {', '.join(_READERS)}"
            )
            continue
        try:
            settings = reader(text, settings)
        except ValueError as error:
            errors.append(f"{key}: expected {error}, found {quote_value(text)}")
    rules = settings.rules
    if not errors and rules.superpod_reserve >= rules.superpod_size:
        errors.append(
            f"reserve-nodes: expected fewer than the {rules.superpod_size} of "
            f"super-pod-size, found {rules.superpod_reserve}"
        )
    if errors:
        more = (
            [f"and {len(errors) - _ERRORS_MOST} more"]
            if len(errors) > _ERRORS_MOST
            else []
        )
        raise UnusableError("; ".join([*errors[:_ERRORS_MOST], *more]))
    return settings


class SettingsFollower:
    """Follower of the ConfigMap `ascend-extender-settings`.

    It keeps the dynamic settings that are in force. Without this ConfigMap they are
    those of the extender's start.
    """

    def __init__(
        self,
        defaults: DynamicSettings,
        *,
        adjust: Callable[[DynamicSettings], None],
        record: Callable[[Regarding, str, str], None],
    ) -> None:
        """Begin with `defaults` in force; `adjust` is not called for them.

        Args:
            defaults: Settings that are in force if there is no ConfigMap
                `ascend-extender-settings`.
            adjust: Puts changed settings into force in the rest of the extender.
            record: Records an event on the ConfigMap. Takes a reference to the
                ConfigMap, the event's reason and its message.
        """
        self._defaults = defaults
        self._adjust = adjust
        self._record = record
        self.in_force = defaults
        #: whether a ConfigMap has set the settings in force
        self._is_configured = False
        #: whether the current ConfigMap is wrong and takes no effect
        self.is_unusable = False

    def follow(self, change: Change[ConfigMap]) -> None:
        """Put the settings of a changed `ascend-extender-settings` into force.

        An invalid ConfigMap changes no setting; an event on it lists at most three of
        its errors. After a deletion, the settings from the extender's start come into
        force.

        Args:
            change: What the watch of the ConfigMap has shown.
        """
        match change:
            case Upserted(obj=config_map):
                self._apply(config_map)
            case Deleted():
                self._is_configured = False
                self._put_into_force(self._defaults)
            case Synced():
                pass

    def _apply(self, config_map: ConfigMap) -> None:
        meta, texts = config_map.metadata, config_map.data or {}
        config_map_regarding = Regarding(
            kind="ConfigMap", name=meta.name, namespace=meta.namespace, uid=meta.uid
        )
        try:
            settings = parse(texts, self._defaults)
        except UnusableError as error:
            self.is_unusable = True
            source = _AS_BEFORE if self._is_configured else _AS_STARTED
            text = f"{error}. {source}: {describe(self.in_force)}"
            log.warning("settings not taken", extra={"why": text})
            self._record(config_map_regarding, "AscendSettingsUnusable", text)
            return
        self._is_configured = True
        idle = sorted(texts.keys() & IDLE)
        if idle:
            log.info("settings that change nothing here", extra={"keys": idle})
        if self._put_into_force(settings):
            self._record(
                config_map_regarding,
                "AscendSettingsTaken",
                f"in force: {describe(settings)}",
            )

    def _put_into_force(self, settings: DynamicSettings) -> bool:
        """Put `settings` into force; return whether the earlier ones were different."""
        self.is_unusable = False
        if settings == self.in_force:
            return False
        self.in_force = settings
        log.info("settings have changed", extra={"now": describe(settings)})
        self._adjust(settings)
        return True


def describe(settings: DynamicSettings) -> str:
    """Return all dynamic settings as one line of `key value` pairs.

    The keys are those of the ConfigMap `ascend-extender-settings`.
    """
    rules = settings.rules
    listed = {
        "self-maintain-available-card": str(settings.self_maintain).lower(),
        "job-rules": rules.profile.value,
        "super-pod-size": rules.superpod_size,
        "reserve-nodes": rules.superpod_reserve,
        "nslb-version": rules.switches.value,
        "shared-tor-num": rules.shared_leaves,
    }
    return ", ".join(f"{key} {value}" for key, value in listed.items())


def _self_maintain(text: str, settings: DynamicSettings) -> DynamicSettings:
    return replace(
        settings, self_maintain=_check_one_of(text, "true", "false") == "true"
    )


def _job_rules(text: str, settings: DynamicSettings) -> DynamicSettings:
    profile = Profile(_check_one_of(text, *(profile.value for profile in Profile)))
    return replace(settings, rules=replace(settings.rules, profile=profile))


def _superpod_size(text: str, settings: DynamicSettings) -> DynamicSettings:
    size = _parse_number(text, least=1)
    return replace(settings, rules=replace(settings.rules, superpod_size=size))


def _superpod_reserve(text: str, settings: DynamicSettings) -> DynamicSettings:
    nodes = _parse_number(text, least=0)
    return replace(settings, rules=replace(settings.rules, superpod_reserve=nodes))


def _switches(text: str, settings: DynamicSettings) -> DynamicSettings:
    version = Version(_check_one_of(text, Version.ONE.value, Version.TWO.value))
    return replace(settings, rules=replace(settings.rules, switches=version))


def _shared_leaves(text: str, settings: DynamicSettings) -> DynamicSettings:
    leaves = int(_check_one_of(text, "1", "2"))
    return replace(settings, rules=replace(settings.rules, shared_leaves=leaves))


_READERS: Mapping[str, _Reader] = {
    "self-maintain-available-card": _self_maintain,
    "job-rules": _job_rules,
    "super-pod-size": _superpod_size,
    "reserve-nodes": _superpod_reserve,
    "nslb-version": _switches,
    "shared-tor-num": _shared_leaves,
}


def _check_one_of(text: str, *allowed: str) -> str:
    if text not in allowed:
        raise ValueError(" or ".join(allowed))
    return text


def _parse_number(text: str, *, least: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_NODES_MOST))
    if not is_number or not least <= int(text) <= _NODES_MOST:
        raise ValueError(f"a whole number from {least} to {_NODES_MOST}")
    return int(text)
