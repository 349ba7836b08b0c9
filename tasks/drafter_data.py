"""What a drafter reads beside its options: found, checked and named before a model is loaded."""

from __future__ import annotations

import logging
from pathlib import Path

from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.config.model_drafters import DraftModel, DraftTree
from specdec_core.config.retrieval import Rest, SuffixAutomaton
from specdec_core.config.settings import Settings
from specdec_core.config.window_drafters import SelfDraft
from specdec_core.data.records import Suite
from specdec_core.errors import ConfigError
from specdec_core.retrieval.datastore import DatastoreManifest, prompt_hash, verify_datastore
from tasks.template_check import warn_of_template

logger = logging.getLogger(__name__)


def drafter_data(
    drafter: DrafterConfig,
    suite: Suite | None,
    *,
    target: str,
    tokenizer_identity: str,
    settings: Settings,
) -> str:
    """Return the content hash of what `drafter` reads, "" for nothing.

    Warns where a datastore holds prompts of the suite it is measured on.

    Args:
        drafter: Options.
        suite: Prompts of the evaluation; None where prompts are not known yet.
        target: Reference of the target.
        tokenizer_identity: Content hash of its tokenizer.
        settings: Where models are kept.

    Raises:
        ConfigError: if the datastore is missing or damaged, or the draft model cannot be used, or
            one of them was made for another tokenizer.
    """
    if isinstance(drafter, Eagle | Medusa):
        return _learned_draft(drafter, target, settings)
    if isinstance(drafter, DraftModel | DraftTree):
        return _draft_model(drafter.model, target, tokenizer_identity, settings)
    if not isinstance(drafter, Rest | SelfDraft | SuffixAutomaton) or not drafter.datastore:
        return ""
    manifest = verify_datastore(Path(drafter.datastore))
    if manifest.tokenizer_identity != tokenizer_identity:
        raise ConfigError(
            f"datastore {drafter.datastore} holds tokens of the tokenizer of {manifest.model}, "
            f"which is not that of {target}: build one with --model {target}"
        )
    if suite is not None:
        _warn_of_overlap(drafter.datastore, manifest, suite)
    return manifest.tokens_hash


def _draft_model(draft: str, target: str, tokenizer_identity: str, settings: Settings) -> str:
    """Return the identity of a draft model after checking that its ids are the target's."""
    from specdec_core.models import files
    from specdec_core.models.reference import resolve_model

    resolved = resolve_model(draft, settings.cache_dir, logger.info)
    if files.tokenizer_identity(resolved.folder, settings.cache_dir) != tokenizer_identity:
        from specdec_core.models.loading import load_tokenizer
        from specdec_core.models.tokenizers import check_same_tokenizer

        folder = resolve_model(target, settings.cache_dir, logger.info).folder
        names = (target, resolved.reference)
        check_same_tokenizer(load_tokenizer(folder), load_tokenizer(resolved.folder), names=names)
    warn_of_template(draft, resolved.folder, target, settings)
    return resolved.identity


def _learned_draft(drafter: Eagle | Medusa, target: str, settings: Settings) -> str:
    """Return the identity of a trained drafter after checking that it belongs to the target."""
    from specdec_core.drafts.manifest import check_kind, check_target, verify_draft
    from specdec_core.drafts.specs import DraftTarget
    from specdec_core.models.architecture import read_architecture
    from specdec_core.models.reference import resolve_model

    manifest = verify_draft(Path(drafter.model))
    check_kind(manifest, drafter.method, drafter.model)
    resolved = resolve_model(target, settings.cache_dir, logger.info)
    arch = read_architecture(resolved.folder)[0]
    facts = DraftTarget.of(resolved.identity, arch, resolved.reference)
    check_target(manifest, facts, allows_other=drafter.other_target)
    warn_of_template(drafter.model, Path(drafter.model), target, settings)
    return manifest.identity


def _warn_of_overlap(folder: str, manifest: DatastoreManifest, suite: Suite) -> None:
    seen = manifest.prompt_hashes
    num = sum(prompt_hash(item.prompt) in seen for item in suite.items) if seen else 0
    if num:
        logger.warning(
            "datastore %s holds %s of the %s prompts of suite %s and their references: on these "
            "its drafter has seen the answers, which says nothing about other prompts",
            folder,
            num,
            len(suite.items),
            suite.name,
        )
