"""Every registered method inherits the conformance suite and runs on models of every family."""

import importlib
from pathlib import Path

from specdec_core.config.drafters import METHODS
from specdec_core.decoding import DRAFTERS
from tests.conformance import (
    test_drafters_learned_on_models,
    test_drafters_model_on_models,
    test_drafters_on_models,
)
from tests.conformance.drafter_conformance import DrafterConformance

FOLDER = Path(__file__).parent


def methods_of_subclasses(parent: type[DrafterConformance]) -> set[str]:
    """Methods of all classes below `parent`; those whose options need a file name their `kind`."""
    found = set()
    for child in parent.__subclasses__():
        config = getattr(child, "config", None)
        kind = getattr(child, "kind", None) if config is None else type(config)
        found |= {kind.model_fields["method"].default} if kind else set()
        found |= methods_of_subclasses(child)
    return found


def test_every_method_has_a_subclass_of_the_conformance_suite():
    for path in FOLDER.glob("test_drafters*.py"):
        importlib.import_module(f"tests.conformance.{path.stem}")
    assert methods_of_subclasses(DrafterConformance) >= set(METHODS)


def test_every_method_runs_on_models_of_every_family():
    configs = (
        *test_drafters_on_models.CONFIGS,
        *test_drafters_model_on_models.CONFIGS,
        *test_drafters_learned_on_models.CONFIGS,
    )
    # The continuations of a datastore do not depend on the target.
    assert {config.method for config in configs} | {"rest"} == set(METHODS)


def test_every_method_that_can_be_asked_for_has_a_drafter():
    assert set(METHODS) <= set(DRAFTERS.methods)
