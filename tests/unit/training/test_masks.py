"""Masks of responses in three styles of chat templates, in plain prompts, and what is refused."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec_core.errors import ConfigError, DataError
from specdec_core.training.masks import (
    ask,
    ask_again,
    first_message,
    mask_conversation,
    serving_hash,
)
from specdec_core.training.prompts import Message, Prompt
from specdec_core.training.spans import cut_spans, response_mask

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "<|begin|>{% for m in messages %}<|head|>{{ m.role }}<|/head|>\n\n{{ m.content | trim }}<|eot|>"
    "{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}"
)
GEMMA = (
    "<bos>{% for m in messages %}<start>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end>\n{% endfor %}{% if add_generation_prompt %}<start>model\n"
    "{% endif %}"
)
SPECIAL = ["<eos>", "<|im_start|>", "<|im_end|>", "<|begin|>", "<|head|>", "<|/head|>", "<|eot|>"]
SPECIAL += ["<bos>", "<start>", "<end>"]
STYLES = {"chatml": (CHATML, "<|im_end|>"), "llama": (LLAMA, "<|eot|>"), "gemma": (GEMMA, "<end>")}


def make_tokenizer(template, merges=()):
    """Return a tokenizer of single bytes, special tokens and what `merges` joins."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    joined = ["".join(pair) for pair in merges]
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *alphabet, *joined])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    fast.chat_template = template
    return fast


def turns(*texts):
    roles = ("user", "assistant")
    return [Message(role=roles[n % 2], content=text) for n, text in enumerate(texts)]


def masked_texts(tokenizer, conversation):
    return [tokenizer.decode(conversation.token_ids[a:b]) for a, b in conversation.spans]


@pytest.mark.parametrize("style", STYLES)
class TestStyles:
    def masked(self, style, *texts):
        template, end = STYLES[style]
        tokenizer = make_tokenizer(template)
        stop = {tokenizer.convert_tokens_to_ids(end)}
        found = mask_conversation(tokenizer, turns(*texts), stop, name="c")
        return tokenizer, found, end

    def test_exactly_the_answers_and_the_tokens_that_end_them_are_masked(self, style):
        tokenizer, found, end = self.masked(style, "Hi", "Hello!", "And?", "No.")
        assert masked_texts(tokenizer, found) == [f"Hello!{end}", f"No.{end}"]

    def test_the_ids_are_those_of_the_whole_text(self, style):
        tokenizer, found, _ = self.masked(style, "Hi", "Hello!")
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}],
            tokenize=False,
        )
        assert tokenizer.decode(found.token_ids) == text

    def test_what_precedes_an_answer_is_what_a_server_reads(self, style):
        tokenizer, found, _ = self.masked(style, "Hi", "Hello!")
        prompt = Prompt(id="c", domain="chat", source="s", messages=turns("Hi"))
        asked = ask(tokenizer, "chat", prompt)
        assert found.token_ids[: found.spans[0][0]] == asked.token_ids

    def test_the_number_of_masked_tokens(self, style):
        _, found, _ = self.masked(style, "Hi", "abc")
        (span,) = found.spans
        assert span[1] - span[0] == len("abc") + 1  # one token per byte, and the end

    def test_answers_with_line_breaks_inside_are_whole(self, style):
        tokenizer, found, end = self.masked(style, "Hi", "one\n\ntwo")
        assert masked_texts(tokenizer, found) == [f"one\n\ntwo{end}"]


@pytest.mark.parametrize("style", ["llama", "gemma"])
def test_where_the_template_trims_the_mask_covers_what_is_left(style):
    template, end = STYLES[style]
    tokenizer = make_tokenizer(template)
    stop = {tokenizer.convert_tokens_to_ids(end)}
    found = mask_conversation(tokenizer, turns("Hi", "  \nyes  \n"), stop, name="c")
    assert masked_texts(tokenizer, found) == [f"yes{end}"]


def test_where_the_template_keeps_white_space_so_does_the_mask():
    tokenizer = make_tokenizer(CHATML)
    stop = {tokenizer.convert_tokens_to_ids("<|im_end|>")}
    found = mask_conversation(tokenizer, turns("Hi", " yes "), stop, name="c")
    assert masked_texts(tokenizer, found) == [" yes <|im_end|>"]


def test_a_system_turn_is_no_answer():
    tokenizer = make_tokenizer(CHATML)
    stop = {tokenizer.convert_tokens_to_ids("<|im_end|>")}
    messages = [Message(role="system", content="Be brief."), *turns("Hi", "Yo")]
    found = mask_conversation(tokenizer, messages, stop, name="c")
    assert masked_texts(tokenizer, found) == ["Yo<|im_end|>"]


def test_a_template_that_drops_earlier_thoughts_is_refused():
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}Q:{{ m.content }}\n{% else %}A:"
        "{% if loop.last %}<think></think>{% endif %}{{ m.content }}<eos>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}A:{% endif %}"
    )
    with pytest.raises(ConfigError, match="otherwise than the whole"):
        mask_conversation(make_tokenizer(template), turns("a", "b", "c", "d"), {0}, name="c")


def test_a_template_whose_opening_is_not_in_finished_answers_is_refused():
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]<think></think>{% endif %}"
    )
    with pytest.raises(ConfigError, match="otherwise than the whole"):
        mask_conversation(make_tokenizer(template), turns("a", "b"), {0}, name="c")


def test_a_template_that_ends_answers_with_no_stop_token_is_refused():
    with pytest.raises(ConfigError, match=r"none of the stop tokens \[0\]"):
        mask_conversation(make_tokenizer(CHATML), turns("a", "b"), {0}, name="c")


def test_a_token_over_the_border_of_an_answer_is_refused():
    tokenizer = make_tokenizer(CHATML, merges=[("Ċ", "Ċ")])
    stop = {tokenizer.convert_tokens_to_ids("<|im_end|>")}
    with pytest.raises(DataError, match="reaches over the border"):
        mask_conversation(tokenizer, turns("a", "\nb"), stop, name="c")
    assert mask_conversation(tokenizer, turns("a", "b"), stop, name="c").spans


def test_an_answer_that_is_trimmed_away_is_refused():
    tokenizer = make_tokenizer(GEMMA)
    stop = {tokenizer.convert_tokens_to_ids("<end>")}
    with pytest.raises(DataError, match="is empty once"):
        mask_conversation(tokenizer, turns("a", "  "), stop, name="c")


def test_a_base_model_takes_no_conversations():
    tokenizer = make_tokenizer(None)
    with pytest.raises(ConfigError, match="no chat template"):
        mask_conversation(tokenizer, turns("a", "b"), {0}, name="c")
    history = Prompt(id="h", domain="chat", source="s", messages=turns("a", "b", "c"))
    with pytest.raises(ConfigError, match="'h' is a conversation"):
        ask(tokenizer, "base", history)


def test_a_base_prompt_is_plain_and_has_the_tokens_of_the_tokenizers_default():
    tokenizer = make_tokenizer(None)
    prompt = Prompt(id="p", domain="own", source="s", messages=turns("Once upon"))
    question = ask(tokenizer, "base", prompt)
    assert tokenizer.decode(question.token_ids) == "Once upon"
    assert question.template.stop_strings == ()


def test_a_base_prompt_of_a_known_domain_is_asked_as_in_an_evaluation():
    tokenizer = make_tokenizer(None)
    prompt = Prompt(id="p", domain="qa", source="s", messages=turns("Who?"))
    question = ask(tokenizer, "base", prompt)
    text = tokenizer.decode(question.token_ids)
    assert text.endswith("Question: Who?\nAnswer:")
    assert question.template.stop_strings == ("\n",)
    assert text.startswith(tokenizer.decode(question.prefix_ids))
    assert len(question.prefix_ids) > 100


def test_later_turns_are_rendered_with_what_was_said():
    tokenizer = make_tokenizer(CHATML)
    prompt = Prompt(id="p", domain="own", source="s", messages=turns("a"), later_turns=("c",))
    said = [first_message("chat", prompt), *turns("a", "b", "c")[1:]]
    question = ask_again(tokenizer, "chat", prompt, said)
    assert tokenizer.decode(question.token_ids) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_hash_of_serving_changes_with_chat_template_and_domains():
    base = serving_hash(make_tokenizer(CHATML), "chat", ["chat"])
    assert serving_hash(make_tokenizer(CHATML), "chat", ["chat", "chat"]) == base
    assert serving_hash(make_tokenizer(CHATML + " "), "chat", ["chat"]) != base
    assert serving_hash(make_tokenizer(CHATML), "chat", ["code"]) != base
    assert serving_hash(make_tokenizer(CHATML), "base", ["chat"]) != base


def test_masks_of_spans():
    assert response_mask(6, [(1, 3), (5, 6)]).tolist() == [False, True, True, False, False, True]


def test_spans_behind_the_limit_are_cut_or_left_out():
    assert cut_spans([(2, 5), (8, 12)], 10) == ((2, 5), (8, 10))
    assert cut_spans([(2, 5), (8, 12)], 8) == ((2, 5),)
    assert cut_spans([(2, 5)], 2) == ()
