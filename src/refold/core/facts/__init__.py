"""Facts: the values of a span that a paraphrase loses, found by code, and put back behind a summary.

`extract_facts` finds them, `audit` says which of them a summary lacks and writes those as an index within a budget,
`contains_fact` decides whether a text says one. See docs/facts.md for what is found and how much survives.
"""

from refold.core.facts.audit import Audit, Survival, audit, fact_index
from refold.core.facts.extract import extract_facts
from refold.core.facts.index import short_id
from refold.core.facts.model import CountText, Fact, FactClass
from refold.core.facts.presence import Presence, contains_fact

__all__ = [
    "Audit",
    "CountText",
    "Fact",
    "FactClass",
    "Presence",
    "Survival",
    "audit",
    "contains_fact",
    "extract_facts",
    "fact_index",
    "short_id",
]
