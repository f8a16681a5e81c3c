"""Our byte tokenizer, and tokenizers from a folder: ids, loss masks, and folders that cannot be used."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.core.errors import UserError
from harness.pipeline.data import load_documents
from harness.pipeline.tokenizer import ByteTokenizer, FolderTokenizer, check_vocabulary, load_tokenizer

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is two plus two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "Quite sure."},
]
PLAIN = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] }}<|end|>\n{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Drops what earlier assistant turns said in brackets, as reasoning models' templates do.
FORGETFUL = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['role'] == 'assistant' and not loop.last %}{{ m['content'].split(']')[-1] }}{% else %}{{ m['content'] }}"
    "{% endif %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_folder(folder: Path, template: str | None = PLAIN) -> Path:
    """A tokenizer of single bytes with the markers of the templates above."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|eos|>", pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]})
    fast.chat_template = template
    fast.save_pretrained(folder)
    return folder


def supervised(tokenizer: FolderTokenizer, messages: list[dict[str, str]]) -> str:
    ids, mask = tokenizer.encode_chat(messages)
    assert len(ids) == len(mask)
    return str(tokenizer._inner.decode([i for i, flag in zip(ids, mask, strict=True) if flag]))


# ---- bytes ----


def test_text_as_bytes() -> None:
    ids, mask = ByteTokenizer().encode_text("Ähm")
    assert ids == [0xC3, 0x84, ord("h"), ord("m"), ByteTokenizer.EOS]
    assert mask == [1] * 5


def test_a_conversation_as_bytes() -> None:
    t = ByteTokenizer
    ids, mask = t().encode_chat([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}])
    assert ids == [t.USER, *b"Hi", t.END, t.ASSISTANT, *b"Yo", t.END, t.EOS]
    assert mask == [0, 0, 0, 0, 0, 1, 1, 1, 0]


def test_each_role_has_a_marker_of_its_own() -> None:
    roles = ("system", "user", "assistant", "tool")
    firsts = [ByteTokenizer().encode_chat([{"role": role, "content": "x"}])[0][0] for role in roles]
    t = ByteTokenizer
    assert firsts == [t.SYSTEM, t.USER, t.ASSISTANT, t.TOOL]


@given(st.text())
def test_bytes_lose_nothing_and_stay_in_the_vocabulary(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    tokenizer = ByteTokenizer()
    ids, _ = tokenizer.encode_text(text)
    assert tokenizer.decode(ids) == text
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    assert tokenizer.vocab_size - 1 == tokenizer.MASK  # what mask_token_id = -1 stands for
    assert tokenizer.MASK not in ids


# ---- folders ----


def test_text_with_a_tokenizer_from_a_folder(tmp_path: Path) -> None:
    tokenizer = FolderTokenizer(make_folder(tmp_path))
    ids, mask = tokenizer.encode_text("Ähm")
    assert tokenizer._inner.decode(ids) == "Ähm<|eos|>"
    assert mask == [1] * len(ids)
    assert tokenizer.vocab_size == 256 + 6
    assert max(ids) < tokenizer.vocab_size
    assert tokenizer._inner.decode([tokenizer.pad_id]) == "<|pad|>"


@pytest.mark.parametrize("template", [PLAIN, MARKED])
def test_only_what_the_assistant_says_is_supervised(tmp_path: Path, template: str) -> None:
    """The template's own marks and the way without them agree."""
    tokenizer = FolderTokenizer(make_folder(tmp_path, template))
    assert supervised(tokenizer, CHAT) == "Four.<|end|>\nQuite sure.<|end|>\n"
    ids, _ = tokenizer.encode_chat(CHAT)
    assert tokenizer._inner.decode(ids).startswith("<|system|>Be brief.<|end|>\n<|user|>What")


def test_a_template_that_rewrites_earlier_turns(tmp_path: Path) -> None:
    """Of an earlier turn that comes out otherwise than when it was the last, what both share is supervised."""
    tokenizer = FolderTokenizer(make_folder(tmp_path, FORGETFUL))
    chat = [
        {"role": "user", "content": "Two plus two?"},
        {"role": "assistant", "content": "[easy] Four."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "[well] Yes."},
    ]
    assert supervised(tokenizer, chat) == "[well] Yes.<|end|>\n"


def test_a_conversation_needs_a_template(tmp_path: Path) -> None:
    tokenizer = FolderTokenizer(make_folder(tmp_path, None))
    with pytest.raises(UserError, match="no chat template"):
        tokenizer.encode_chat(CHAT)


def test_a_conversation_that_the_template_refuses(tmp_path: Path) -> None:
    refusing = "{% for m in messages %}{{ raise_exception('no system role') if m['role'] == 'system' }}{% endfor %}"
    folder = make_folder(tmp_path / "t", refusing)
    data = tmp_path / "chat.jsonl"
    data.write_text(json.dumps({"conversations": CHAT[1:3]}) + "\n" + json.dumps({"conversations": CHAT}))
    with pytest.raises(UserError, match=r"chat.jsonl:2: the chat template of .* fails: no system role"):
        load_documents(str(data), FolderTokenizer(folder))


# ---- choosing ----


def test_which_tokenizer_is_loaded(tmp_path: Path) -> None:
    folder = str(make_folder(tmp_path))
    assert isinstance(load_tokenizer("", ""), ByteTokenizer)
    assert isinstance(load_tokenizer("bytes", folder), ByteTokenizer)
    assert isinstance(load_tokenizer(folder, ""), FolderTokenizer)
    assert isinstance(load_tokenizer("", folder), FolderTokenizer)


def test_folders_that_are_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        load_tokenizer(str(tmp_path / "nowhere"), "")
    with pytest.raises(UserError, match="no tokenizer there"):
        load_tokenizer(str(tmp_path), "")
    (tmp_path / "tokenizer.json").write_text("{ cut")
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        load_tokenizer(str(tmp_path), "")
    assert "\n" not in str(caught.value)


def test_code_in_the_folder_is_not_run(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "t")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["auto_map"] = {"AutoTokenizer": ["evil.Evil", None]}
    config["tokenizer_class"] = "Evil"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with contextlib.suppress(UserError):  # some versions fall back to tokenizer.json, others refuse
        load_tokenizer(str(folder), "")
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_larger_than_the_embedding() -> None:
    check_vocabulary(ByteTokenizer(), 264)
    with pytest.raises(UserError, match=r"264 ids, the embedding only 256 rows; set vocab_size to 264 or more"):
        check_vocabulary(ByteTokenizer(), 256)
