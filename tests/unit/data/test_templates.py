"""Prompts as text and as token ids."""

import dataclasses
import re

import pytest

from specdec_core.data.suites import DOMAINS, SuiteItem, load_suite
from specdec_core.data.templates import Template, get_template, render_prompts
from specdec_core.errors import ConfigError


class WordTokenizer:
    """Words, white space and punctuation as tokens; "." and a line break behind it are one."""

    chat_template = "present"

    def __init__(self, bos: bool = True) -> None:
        self.vocabulary: dict[str, int] = {"<bos>": 0}
        self.bos = [0] if bos else []

    def __call__(self, text, *, add_special_tokens=True):
        opening = self.bos if add_special_tokens else []
        return {"input_ids": [opening + [self._id(t) for t in _pieces(one)] for one in text]}

    def apply_chat_template(self, conversation, *, tokenize, add_generation_prompt, **variables):
        assert not tokenize
        assert add_generation_prompt
        assert variables == {"date_string": "26 Jul 2024", "enable_thinking": False}
        (message,) = conversation
        return f"<bos>[{message['role']}] {message['content']} [assistant]"

    def _id(self, token: str) -> int:
        return self.vocabulary.setdefault(token, len(self.vocabulary))

    def decode(self, ids) -> str:
        names = {number: token for token, number in self.vocabulary.items()}
        return "".join(names[i] for i in ids)


def _pieces(text: str) -> list[str]:
    return re.findall(r"<bos>|\.\n|\w+|\s|[^\w\s]", text)


def _item(prompt: str, domain: str = "qa") -> SuiteItem:
    return SuiteItem(prompt, domain, (prompt,))


@pytest.mark.parametrize("kind", ["base", "chat"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_keeps_the_question(domain, kind):
    text = get_template(domain, kind).item_text("How {many} words?")
    assert "How {many} words?" in text


@pytest.mark.parametrize(
    ("domain", "prompt", "expected"),
    [
        ("translation", "Translate German to English: Ja.", "German: Ja.\nEnglish:"),
        ("translation", "Ja.", "German: Ja.\nEnglish:"),
        ("summarization", "Summarize: A: b.", "Article: A: b.\nSummary:"),
        (
            "summarization",
            "Summarize the article in one sentence: A b.",
            "Article: A b.\nSummary:",
        ),
        ("qa", "Who?", "Question: Who?\nAnswer:"),
        ("rag", "One.\nTwo.\nWho?", "One.\nTwo.\nQuestion: Who?\nAnswer:"),
        ("rag", "Who?", "\nQuestion: Who?\nAnswer:"),
        (
            "rag",
            "Answer the question with a few words taken from the passages.\n\nPassage 1: One.\n\n"
            "Passage 2: Two.\n\nQuestion: Who?\nAnswer:",
            "Passage 1: One.\n\nPassage 2: Two.\nQuestion: Who?\nAnswer:",
        ),
        (
            "mmlu",
            "The following is a multiple choice question about law. Answer with the letter.\n\n"
            "Who?\nA. me\nB. you\nAnswer:",
            "Who?\nA. me\nB. you\nAnswer:",
        ),
        ("code", "def f():\n", "def f():\n"),
        ("chat", "Hello", "User: Hello\nAssistant:"),
        ("law", "As it stands", "As it stands"),
    ],
)
def test_base_prompt(domain, prompt, expected):
    assert get_template(domain, "base").item_text(prompt) == expected


@pytest.mark.parametrize(
    ("domain", "prompt"),
    [
        ("translation", "Translate German to English: Ja."),
        ("summarization", "Summarize: A b."),
        ("mmlu", "The following is a multiple choice question about law.\n\nWho?\nA. me\nAnswer:"),
        ("math", "How many?"),
        ("chat", "Hello"),
    ],
)
def test_chat_message_is_the_prompt_itself(domain, prompt):
    assert get_template(domain, "chat").item_text(prompt) == prompt


def test_base_prompts_end_where_the_answer_of_an_example_starts():
    for domain in DOMAINS:
        template = get_template(domain, "base")
        if template.header:
            ending = template.item_text("x").rsplit("\n", 1)[1]
            assert f"\n{ending} " in template.header
            assert template.header.endswith("\n\n")


@pytest.mark.parametrize(
    ("domain", "num_examples", "marker"),
    [
        ("translation", 4, "English: "),
        ("summarization", 1, "Summary: "),
        ("qa", 4, "Answer: "),
        ("rag", 1, "Answer: "),
        ("mmlu", 3, "Answer: "),
        ("math", 2, "The answer is "),
    ],
)
def test_header_has_its_worked_examples(domain, num_examples, marker):
    assert get_template(domain, "base").header.count(marker) == num_examples


@pytest.mark.parametrize("domain", DOMAINS)
def test_worked_examples_are_not_in_the_packaged_suite(domain):
    header = get_template(domain, "base").header
    for item in load_suite(domain, suite="builtin").items:
        question = item.prompt.strip().splitlines()[-1].removeprefix("Summarize: ")
        assert question == "Answer:" or question not in header


def test_only_the_article_is_cut_and_at_the_end_of_a_word():
    template = dataclasses.replace(get_template("summarization", "base"), max_prompt_words=3)
    assert template.item_text("Summarize: a  b\nc d.") == "Article: a  b\nc\nSummary:"
    assert template.item_text("Summarize: a b") == "Article: a b\nSummary:"
    chat = dataclasses.replace(get_template("summarization", "chat"), max_prompt_words=2)
    assert chat.item_text("Summarize: a b c") == "Summarize: a b"


def test_articles_are_cut_at_320_words():
    words = " ".join(str(n) for n in range(400))
    text = get_template("summarization", "base").item_text(f"Summarize: {words}")
    assert text.endswith(" 319\nSummary:")


def test_every_field_changes_the_hash():
    template = Template("qa", "base", "{text}")
    changes = {
        "domain": "rag",
        "kind": "chat",
        "item_format": "{text}?",
        "pattern": "x",
        "header": "x",
        "stop_strings": ("\n",),
        "extraction": "letter",
        "max_prompt_words": 320,
    }
    assert set(changes) == {field.name for field in dataclasses.fields(Template)}
    changed = {dataclasses.replace(template, **{k: v}).hash for k, v in changes.items()}
    assert len(changed | {template.hash}) == len(changes) + 1
    assert Template("qa", "base", "{text}").hash == template.hash


def test_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="model kind 'instruct' is unknown: use 'base' or 'chat'"):
        get_template("qa", "instruct")


@pytest.mark.parametrize("bos", [True, False])
def test_prefix_is_the_header_and_opens_every_prompt(bos):
    tokenizer, template = WordTokenizer(bos), get_template("qa", "base")
    rendered = render_prompts([_item("One?"), _item("Two?")], template, tokenizer)
    assert tokenizer.decode(rendered.prefix_ids).removeprefix("<bos>") == template.header
    for prompt, ids in zip(("One?", "Two?"), rendered.ids, strict=True):
        text = f"{template.header}Question: {prompt}\nAnswer:"
        assert ids == tuple(tokenizer([text])["input_ids"][0])
        assert ids[: len(rendered.prefix_ids)] == rendered.prefix_ids


def test_prefix_stops_before_a_token_that_reaches_into_the_item():
    template = Template("qa", "base", "\n{text}", header="a b.")
    tokenizer = WordTokenizer()
    rendered = render_prompts([_item("c")], template, tokenizer)
    assert [tokenizer.decode([i]) for i in rendered.ids[0]] == ["<bos>", "a", " ", "b", ".\n", "c"]
    assert tokenizer.decode(rendered.prefix_ids) == "<bos>a b"


def test_prefix_is_shorter_than_every_prompt_and_does_not_depend_on_the_items():
    template = Template("qa", "base", "{text}", header="a b ")
    tokenizer = WordTokenizer()
    prefix = render_prompts([_item("same"), _item("same")], template, tokenizer).prefix_ids
    assert tokenizer.decode(prefix) == "<bos>a b "
    whole = Template("qa", "base", "", header="a b")
    rendered = render_prompts([_item("x")], whole, tokenizer)
    assert rendered.prefix_ids == rendered.ids[0][:-1]


def test_without_header_and_bos_the_prefix_is_empty():
    template = get_template("code", "base")
    assert render_prompts([_item("x = 1")], template, WordTokenizer(bos=False)).prefix_ids == ()


def test_chat_prompt_has_one_bos_and_shares_what_comes_before_the_message():
    tokenizer, template = WordTokenizer(), get_template("chat", "chat")
    rendered = render_prompts([_item("Hi"), _item("Bye")], template, tokenizer)
    assert [tokenizer.decode(ids) for ids in rendered.ids] == [
        "<bos>[user] Hi [assistant]",
        "<bos>[user] Bye [assistant]",
    ]
    assert tokenizer.decode(rendered.prefix_ids) == "<bos>[user] "


def test_only_the_first_turn_is_asked():
    item = SuiteItem("m", "chat", ("first", "second"))
    tokenizer = WordTokenizer()
    (ids,) = render_prompts([item], get_template("chat", "base"), tokenizer).ids
    assert tokenizer.decode(ids) == "<bos>User: first\nAssistant:"


def test_missing_chat_template_and_missing_items_are_errors():
    tokenizer = WordTokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template: use kind 'base'"):
        render_prompts([_item("x")], get_template("qa", "chat"), tokenizer)
    with pytest.raises(ConfigError, match="no items to render"):
        render_prompts([], get_template("qa", "base"), tokenizer)


def test_hugging_face_tokenizer_fits():
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    vocabulary = {"<s>": 0, "?": 1, "user": 2, "One": 3, "Two": 4, "assistant": 5, ":": 6}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>")
    tokenizer.chat_template = (
        "<s>{% for m in messages %} {{ m.role }} : {{ m.content }}{% endfor %} assistant :"
    )
    items = [_item("One"), _item("Two")]
    rendered = render_prompts(items, get_template("chat", "chat"), tokenizer)
    assert rendered.ids == ((0, 2, 6, 3, 5, 6), (0, 2, 6, 4, 5, 6))
    assert rendered.prefix_ids == (0, 2, 6)
