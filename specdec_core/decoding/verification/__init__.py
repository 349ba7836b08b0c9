"""Rules that decide which drafted tokens are kept, one module per rule."""

from specdec_core.decoding.verification.match import Match
from specdec_core.decoding.verification.rejection import Rejection
from specdec_core.decoding.verification.residual import Residual
from specdec_core.decoding.verification.rows import TreeRows
from specdec_core.decoding.verification.rule import Verdict, VerificationRule
from specdec_core.decoding.verification.typical import Typical

__all__ = [
    "Match",
    "Rejection",
    "Residual",
    "TreeRows",
    "Typical",
    "Verdict",
    "VerificationRule",
]
