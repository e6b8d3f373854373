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
from dataclasses import dataclass, field
from functools import partial

from extender.planning.topology import Rules
from extender.settings import Settings
from kube.events import Regarding
from kube.objects import ConfigMap
from kube.reflector import Change, Deleted, Synced, Upserted
from scheduler_core.documents.parsers import word
from scheduler_core.documents.reader import DocumentError, Parser, Part, read
from scheduler_core.placement.job_rules import Profile
from scheduler_core.topology.leaves import Version

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


#: Keys that have an effect.
_KEYS = (
    *("self-maintain-available-card", "job-rules", "super-pod-size"),
    *("reserve-nodes", "nslb-version", "shared-tor-num"),
)
#: Key by which no pod is evicted because of faults.
_HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSettings:
    """Settings that the ConfigMap `ascend-extender-settings` can change at run time."""

    #: True: free chips follow from inventory, health and pods; False: the list in the
    #: device ConfigMap bounds them as well
    self_maintain: bool = True
    rules: Rules = field(default_factory=Rules)
    #: whether no pod is evicted because of faults; what has gone is brought back
    holds_moves: bool = False


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


def parse(texts: Mapping[str, str], defaults: DynamicSettings) -> DynamicSettings:
    """Parse the data of the ConfigMap `ascend-extender-settings` into dynamic settings.

    Args:
        texts: {key: value} of the ConfigMap.
        defaults: Settings whose values are used for keys missing in `texts`.

    Raises:
        DocumentError: A key is unknown or a value is not allowed.
    """
    known = {key: text for key, text in sorted(texts.items()) if key not in IDLE}
    return read(known, partial(_read, defaults=defaults))


def _read(part: Part, defaults: DynamicSettings) -> DynamicSettings:
    fields, rules = part.fields(*_KEYS, _HOLD), defaults.rules
    self_maintain = fields.get(
        "self-maintain-available-card",
        word({"true": True, "false": False}),
        defaults.self_maintain,
    )
    new = Rules(
        profile=fields.get("job-rules", word(_PROFILES), rules.profile),
        superpod_size=fields.get("super-pod-size", _nodes(1), rules.superpod_size),
        superpod_reserve=fields.get("reserve-nodes", _nodes(0), rules.superpod_reserve),
        switches=fields.get("nslb-version", word(_VERSIONS), rules.switches),
        shared_leaves=fields.get(
            "shared-tor-num", word({"1": 1, "2": 2}), rules.shared_leaves
        ),
    )
    is_right = not part.problems.listed
    if is_right and new.superpod_reserve >= new.superpod_size:
        expected = f"fewer than the {new.superpod_size} of super-pod-size"
        fields.at("reserve-nodes").wrong(expected, new.superpod_reserve)
    holds_moves = fields.get(
        _HOLD, word({"true": True, "false": False}), defaults.holds_moves
    )
    return DynamicSettings(
        self_maintain=self_maintain, rules=new, holds_moves=holds_moves
    )


_PROFILES = {profile.value: profile for profile in Profile}
_VERSIONS = {version.value: version for version in (Version.ONE, Version.TWO)}


def _nodes(least: int) -> Parser[int]:
    """Return the parser of a number of nodes, as a text."""

    def read_number(part: Part) -> int:
        text = str(part.value)
        is_number = (
            text.isascii() and text.isdigit() and len(text) <= len(str(_NODES_MOST))
        )
        if not is_number or not least <= int(text) <= _NODES_MOST:
            raise part.wrong(f"a whole number from {least} to {_NODES_MOST}")
        return int(text)

    return read_number


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
        except DocumentError as error:
            self.is_unusable = True
            source = _AS_BEFORE if self._is_configured else _AS_STARTED
            text = f"{_list_problems(error)}. {source}: {describe(self.in_force)}"
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


def _list_problems(error: DocumentError) -> str:
    """Return the first problems in a sentence, and the number of the others."""
    texts = list(error.problems[:_ERRORS_MOST])
    if error.count > _ERRORS_MOST:
        texts.append(f"and {error.count - _ERRORS_MOST} more")
    return "; ".join(texts)


def describe(settings: DynamicSettings) -> str:
    """Return all dynamic settings as one line of `key value` pairs.

    The keys are those of the ConfigMap `ascend-extender-settings`; `hold` only if it
    is set.
    """
    rules = settings.rules
    values = (
        str(settings.self_maintain).lower(),
        rules.profile.value,
        rules.superpod_size,
        rules.superpod_reserve,
        rules.switches.value,
        rules.shared_leaves,
    )
    pairs = [f"{key} {value}" for key, value in zip(_KEYS, values, strict=True)]
    if settings.holds_moves:
        pairs.append(f"{_HOLD} true")
    return ", ".join(pairs)
