"""Public helpers for tests of agents: a strict chat model, generated histories, counters.

Import strategies from `refold.testing.strategies`; they need Hypothesis, which refold itself does not.
"""

from refold.testing.counting import Counter, utf8_quarter
from refold.testing.dialects import DIALECTS, Dialect, OverflowRefusal, ProviderError
from refold.testing.strict_model import (
    BreakOff,
    CutOff,
    Hang,
    Request,
    Script,
    ScriptEndedError,
    Step,
    StrictModel,
)

__all__ = [
    "DIALECTS",
    "BreakOff",
    "Counter",
    "CutOff",
    "Dialect",
    "Hang",
    "OverflowRefusal",
    "ProviderError",
    "Request",
    "Script",
    "ScriptEndedError",
    "Step",
    "StrictModel",
    "utf8_quarter",
]
