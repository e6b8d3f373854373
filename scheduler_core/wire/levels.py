"""How serious the levels of faults are, by the names that the wire has for them."""

#: levels of a fault, the most serious first
_LEVELS = (
    "ManuallySeparateNPU",
    "SeparateNPU",
    "PreSeparateNPU",
    "RestartNPU",
    "FreeRestartNPU",
    "RestartBusiness",
    "RestartRequest",
    "SubHealthFault",
    "NotHandleFault",
)


def seriousness(level: str) -> int:
    """Smaller is worse; a level that we do not know is taken for the worst."""
    return _LEVELS.index(level) if level in _LEVELS else -1
