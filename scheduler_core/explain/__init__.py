"""Why a pod or job does not fit, and what would help."""
