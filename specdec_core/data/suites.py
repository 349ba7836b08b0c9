"""Find and load the evaluation suite of a domain.

Search order: the suite named by the user, the data folder of the settings, the folder
``../shared/data`` beside the working directory or the repository, the set shipped in the
package. Suites are JSONL, read line by line so that a fault is reported with its line; suites on
the Hugging Face hub are read with `datasets`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from specdec_core.data.reading import near_matches, read_items, read_jsonl
from specdec_core.data.records import DOMAIN_ALIASES, DOMAINS, Suite, SuiteItem, content_hash
from specdec_core.errors import DataError

__all__ = ["BUILTIN", "DOMAINS", "Suite", "SuiteItem", "content_hash", "domain_of", "load_suite"]

logger = logging.getLogger(__name__)

BUILTIN = "builtin"

# Files, without their ending, that make up a domain in a folder of public sets. Spec-Bench's own
# math questions are part of GSM8K's test split, so they are not counted a second time.
PUBLIC_FILES: Mapping[str, tuple[str, ...]] = {
    "translation": ("spec_bench/translation", "wmt_de_en/newstest2021_sample"),
    "summarization": ("spec_bench/summarization", "cnn_dm/train_split_sample"),
    "qa": ("nq_open/dev_sample",),
    "rag": ("spec_bench/rag",),
    "mmlu": ("mmlu/test_sample",),
    "math": ("gsm8k/test",),
    "code": ("humaneval/test",),
    "chat": ("spec_bench/mt_bench",),
}

# Public sets that can be asked for by name: the file, without its ending, of each of their domains.
PUBLIC_SETS: Mapping[str, Mapping[str, str]] = {
    "spec_bench": {
        "chat": "spec_bench/mt_bench",
        "translation": "spec_bench/translation",
        "summarization": "spec_bench/summarization",
        "qa": "spec_bench/qa",
        "math": "spec_bench/math_reasoning",
        "rag": "spec_bench/rag",
    },
    "gsm8k": {"math": "gsm8k/test"},
    "humaneval": {"code": "humaneval/test"},
    "mbpp": {"code": "mbpp/test"},
    "mmlu": {"mmlu": "mmlu/test_sample"},
    "stem_qa": {"mmlu": "stem_qa/test_sample"},
    "longbench_write": {"chat": "longbench_write/prompts"},
    "nq_open": {"qa": "nq_open/dev_sample"},
    "cnn_dm": {"summarization": "cnn_dm/train_split_sample"},
    "xsum": {"summarization": "xsum/test_sample"},
    "wmt_de_en": {"translation": "wmt_de_en/newstest2021_sample"},
}

_DOMAIN_NAME = re.compile(r"\w[\w.-]*")
_HUB = re.compile(r"hf:(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<split>[\w.-]+))?")


def load_suite(domain: str, suite: str | None = None, data_dir: Path | None = None) -> Suite:
    """Return the suite of `domain`.

    Args:
        domain: One of DOMAINS, or the user's own name where `suite` or `data_dir` has it.
        suite: A JSONL file; a folder that holds the domain's files; one of PUBLIC_SETS, looked up
            in the same places as a domain, the packaged set standing in where it lies in none; a
            hub data set as
            ``hf:org/name[@revision][:split]``; or ``builtin`` for the packaged set. Behind a
            ``#`` the `meta.category` of the items to keep. None searches the places named at the
            top of this module.
        data_dir: Folder of suites from the settings; ``builtin`` forces the packaged sets.

    Raises:
        DataError: if the suite is not found, a line is broken or breaks the schema, an id
            repeats, or the domain is not known.
    """
    if not _DOMAIN_NAME.fullmatch(domain):
        raise _unknown_domain(domain)
    if suite is not None and "#" in suite and not Path(suite).exists():
        whole, _, category = suite.rpartition("#")
        return load_suite(domain, whole, data_dir).of_category(category)
    if suite == BUILTIN or (suite is None and data_dir == Path(BUILTIN)):
        return _load_builtin(domain)
    if suite is not None and suite.startswith("hf:"):
        return _load_hub(domain, suite)
    if suite is not None and suite in PUBLIC_SETS:
        return _load_public(domain, suite, data_dir)
    if suite is not None:
        return _load_path(domain, suite)
    for folder in _search_folders(domain, data_dir):
        files = _files_in_folder(folder, domain)
        if files:
            return _load_files(domain, files, folder, folder)
    return _load_builtin(domain)


def domain_of(path: Path) -> str:
    """Return the domain that the first item of a suite file names; the reader checks the rest.

    Raises:
        DataError: if the file does not exist or does not begin with an item.
    """
    try:
        with path.open() as lines:
            first = json.loads(next(lines))
        return str(first["domain"])
    except FileNotFoundError as error:
        raise DataError(f"suite {str(path)!r} does not exist: give a JSONL file") from error
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise DataError(
            f"{path}, line 1: no item with a domain ({error}): write one JSON object a line, or "
            "name the domain with --domain"
        ) from error


def _load_public(domain: str, name: str, data_dir: Path | None) -> Suite:
    """The questions of one domain of a public set, or the packaged ones where it lies nowhere."""
    file = PUBLIC_SETS[name].get(domain)
    if file is None:
        raise DataError(
            f"public set {name!r} has no questions of domain {domain!r}: it has "
            f"{', '.join(PUBLIC_SETS[name])}"
        )
    if data_dir != Path(BUILTIN):
        for folder in _search_folders(file, data_dir):
            path = folder / f"{file}.jsonl"
            if path.is_file():
                return _load_files(domain, [path], folder, path)
    logger.warning("public set %s is not here: packaged %s prompts stand in", name, domain)
    return _load_builtin(domain)


def data_folders(data_dir: Path | None) -> Iterator[Path]:
    """Yield the folders that data is looked for in, the user's own first.

    Raises:
        DataError: if the user's own does not exist.
    """
    if data_dir == Path(BUILTIN):
        return
    if data_dir is not None:
        folder = data_dir.expanduser().absolute()
        if not folder.is_dir():
            raise DataError(
                f"data folder {folder} does not exist: correct SPECDEC_DATA, or set it to "
                f"{BUILTIN!r} for the packaged sets"
            )
        yield folder
    repository = Path(__file__).resolve().parents[2]
    for base in dict.fromkeys((Path.cwd(), repository)):
        folder = base.parent / "shared" / "data"
        if folder.is_dir():
            yield folder


def builtin_files() -> Iterator[Path]:
    """Yield the packaged suites of all domains."""
    for domain in DOMAINS:
        packaged = resources.files("specdec_core.data") / "builtin" / f"{domain}.jsonl"
        with resources.as_file(packaged) as path:
            yield path


def _search_folders(wanted: str, data_dir: Path | None) -> Iterator[Path]:
    """Yield the folders to look into, saying so where the user's own has nothing."""
    for number, folder in enumerate(data_folders(data_dir)):
        yield folder
        if number == 0 and data_dir is not None:
            logger.warning("data folder %s has no suite for %r, looking elsewhere", folder, wanted)


def _files_in_folder(folder: Path, domain: str) -> list[Path]:
    """The files of a domain: ``<domain>.jsonl``, all its public files or ``<domain>/*.jsonl``."""
    single = folder / f"{domain}.jsonl"
    if single.is_file():
        return [single]
    public = [folder / f"{name}.jsonl" for name in PUBLIC_FILES.get(domain, ())]
    if public and all(path.is_file() for path in public):
        return public
    return sorted((folder / domain).glob("*.jsonl"))


def _load_path(domain: str, suite: str) -> Suite:
    path = Path(suite).expanduser().absolute()
    if path.is_dir():
        files = _files_in_folder(path, domain)
        if not files:
            raise DataError(
                f"suite folder {path} has no files for domain {domain!r}: expected "
                f"{domain}.jsonl or {domain}/*.jsonl in it"
            )
        return _load_files(domain, files, path, path)
    if not path.is_file():
        raise DataError(
            f"suite {suite!r} does not exist{near_matches(suite, PUBLIC_SETS)}: give a JSONL file, "
            f"a folder, a public set, hf:org/name[@revision][:split] or {BUILTIN!r}"
        )
    return _load_files(domain, [path], path.parent, path)


def _load_files(domain: str, files: list[Path], base: Path, source: Path) -> Suite:
    """The suite of files below `base`, which name it; `source` reads it back."""
    rows = (row for path in files for row in read_jsonl(path))
    items = read_items(rows, domain)
    name = "+".join(path.relative_to(base).with_suffix("").as_posix() for path in files)
    return Suite.of(name, domain, items, str(source))


def _load_builtin(domain: str) -> Suite:
    if domain not in DOMAINS:
        raise _unknown_domain(domain)
    packaged = resources.files("specdec_core.data") / "builtin" / f"{domain}.jsonl"
    with resources.as_file(packaged) as path:
        items = read_items(read_jsonl(path), domain)
    return Suite.of(f"{BUILTIN}/{domain}", domain, items, BUILTIN)


def _unknown_domain(domain: str) -> DataError:
    meant = DOMAIN_ALIASES.get(domain)
    hint = f" (did you mean {meant!r}?)" if meant else near_matches(domain, DOMAINS)
    return DataError(
        f"domain {domain!r} is unknown{hint}: choose one of {', '.join(DOMAINS)}, or give a "
        "suite of your own"
    )


def _load_hub(domain: str, suite: str) -> Suite:
    rows = hub_rows(suite, "test")
    items = read_items(((f"{suite} row {i}", row) for i, row in enumerate(rows)), domain)
    return Suite.of(suite.removeprefix("hf:"), domain, items, suite)


def hub_rows(suite: str, default_split: str) -> list[dict[str, Any]]:
    """Return the rows of one split of a data set on the hub.

    Empty fields, which a table adds to rows that lack them, are left out.

    Args:
        suite: ``hf:org/name[@revision][:split]``.
        default_split: Where `suite` names none.

    Raises:
        DataError: if it cannot be loaded.
    """
    match = _HUB.fullmatch(suite)
    if match is None:
        raise DataError(
            f"hub suite {suite!r} is not understood: write hf:org/name[@revision][:split]"
        )
    name, revision, split = match["name"], match["revision"], match["split"] or default_split
    import datasets  # slow to import, and only hub suites need it

    try:
        table = datasets.load_dataset(name, revision=revision, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"hub suite {suite!r} cannot be loaded ({type(error).__name__}: {error}): check the "
            f"name, the revision, that it has a split {split!r}, and the network"
        ) from error
    return [_present_fields(dict(row)) for row in table]


def _present_fields(row: dict[str, Any]) -> dict[str, Any]:
    meta = row.get("meta")
    if isinstance(meta, Mapping):
        row["meta"] = {name: value for name, value in meta.items() if value is not None}
    nullable = ("reference", "metric")
    return {name: value for name, value in row.items() if value is not None or name in nullable}
