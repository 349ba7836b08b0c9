"""The exception tree: one root, few leaves. A message says what was given and what to do."""


class SpecDecError(Exception):
    """Root of every deliberate error of this package."""


class ConfigError(SpecDecError, ValueError):
    """The user gave something that cannot work; raised before any model is loaded."""


class DataError(ConfigError):
    """A suite file, item or split cannot be used; names the file, line and reason."""


class UnsupportedModelError(ConfigError):
    """The checkpoint is of an architecture, or has a feature, that the engine does not run."""


class CacheDesyncError(SpecDecError):
    """The key-value cache and the committed tokens disagree; continuing would corrupt output."""


class MeasurementError(SpecDecError):
    """A measurement cannot be trusted or was asked for without what it needs."""


class EvaluationFailedError(SpecDecError):
    """One configuration could not be evaluated and was recorded as failed."""


class WorkerLostError(SpecDecError):
    """A model worker died; its request may be sent again."""


class SearchCancelledError(SpecDecError):
    """The user or the orchestrator asked the work to stop; finished evaluations are stored."""


class StoreError(SpecDecError):
    """The database cannot be reached, is full, or has a schema this code does not know."""


class ProfileNotFoundError(SpecDecError, LookupError):
    """No stored skip profile matches the question."""


class ExportError(SpecDecError):
    """What was written does not compute what it was made from; it is removed."""


class ProfileSourceError(SpecDecError):
    """Skip profiles cannot be read now, and no earlier answer is known: serve the dense target."""


class QueueFullError(SpecDecError):
    """As many requests wait as may; try again later."""


class RunNotFoundError(SpecDecError, LookupError):
    """No stored run has the id that was asked for."""
