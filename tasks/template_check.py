"""Whether a draft is asked with the templates that its training texts were written with."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from specdec_core.config.settings import Settings
from specdec_core.drafts.provenance_file import read_provenance

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """Hashes of templates, of the training texts and of what serves now, over the same domains.

    Attributes:
        trained: Of the training texts; None where the draft's folder says nothing.
        served: What the target's prompts of these domains have now; "" beside None.
    """

    trained: str | None = None
    served: str = ""

    @property
    def differs(self) -> bool:
        """Whether the draft has learned other texts than it will see."""
        return self.trained is not None and self.trained != self.served

    def warning(self, draft: str, target: str) -> str:
        """Return what is to be said of a draft and a target if the templates differ, else ""."""
        if not self.differs:
            return ""
        return (
            f"draft {draft} was trained on texts of template {(self.trained or '')[:12]}.., but "
            f"{target} is asked with template {self.served[:12]}..: it will be right less often "
            "than it could; train it on texts of the template that serves"
        )


def check_template(folder: Path, target: str, settings: Settings) -> TemplateCheck:
    """Return the hashes for a draft and a target.

    Args:
        folder: Of the draft.
        target: Reference of the target.
        settings: Where models are kept.

    Raises:
        ConfigError: if the target cannot be found, or what the folder says cannot be read.
    """
    provenance = read_provenance(folder)
    if provenance is None or not provenance.template_hash or not provenance.domains:
        return TemplateCheck()
    from specdec_core.models.loading import load_tokenizer
    from specdec_core.models.reference import resolve_model
    from specdec_core.training.masks import serving_hash

    model = resolve_model(target, settings.cache_dir, logger.info)
    served = serving_hash(load_tokenizer(model.folder), model.kind, provenance.domains)
    return TemplateCheck(provenance.template_hash, served)


def warn_of_template(draft: str, folder: Path, target: str, settings: Settings) -> None:
    """Warn with both hashes if a draft's texts had other templates than its prompts have.

    Args:
        draft: Reference of the draft, for the message.
        folder: Where it is.
        target: Reference of the target.
        settings: Where models are kept.
    """
    text = check_template(folder, target, settings).warning(draft, target)
    if text:
        logger.warning("%s", text)
