"""Token trees and static tree shapes."""

from specdec_core.tree.static_tree import StaticTree, best_static_tree, profile_static_tree
from specdec_core.tree.token_tree import TokenTree

__all__ = [
    "StaticTree",
    "TokenTree",
    "best_static_tree",
    "profile_static_tree",
]
