"""Drafters, greedy verification, the decode loop and exact replay."""

from specdec_core.bench.differences import OutputDifference
from specdec_core.decoding import drafters
from specdec_core.decoding.compare import compare_outputs
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, Drafter, DrafterNeeds, StepOutcome
from specdec_core.decoding.loop import generate
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import DRAFTERS, make_drafter, register
from specdec_core.decoding.replay import replay
from specdec_core.decoding.sequence import Generation
from specdec_core.decoding.target import Cache, TargetView

__all__ = [
    "DRAFTERS",
    "Cache",
    "DraftBudget",
    "Drafter",
    "DrafterContext",
    "DrafterNeeds",
    "Generation",
    "OutputDifference",
    "Proposal",
    "StepOutcome",
    "TargetView",
    "compare_outputs",
    "drafters",
    "generate",
    "make_drafter",
    "register",
    "replay",
]
