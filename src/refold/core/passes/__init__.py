"""Passes: one fold kind per file.

Each pass that folds single messages is two small functions of one signature: `propose` says how a message could be
shown shorter (and which artifact must be stored first), `show` shows it. `ITEM_PASSES` lists them; projection and the
planner are loops over it.
"""

from collections.abc import Mapping

from refold.core.passes import args, clear, human, media, result
from refold.core.passes.base import ItemPass, Proposal, Scope

ITEM_PASSES: Mapping[str, ItemPass] = {
    "args": ItemPass(kind="args", propose=args.propose, show=args.show),
    "media": ItemPass(kind="media", propose=media.propose, show=media.show),
    "result": ItemPass(kind="result", propose=result.propose, show=result.show),
    "clear": ItemPass(kind="clear", propose=clear.propose, show=clear.show),
    "human": ItemPass(kind="human", propose=human.propose, show=human.show),
}

__all__ = ["ITEM_PASSES", "ItemPass", "Proposal", "Scope"]
