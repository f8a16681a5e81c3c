"""Text to token ids: a byte-level tokenizer of our own, or the one in a target model's folder.

Both know two kinds of document: plain text, of which every token is supervised, and a conversation, of which
only what the assistant says is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.core.errors import UserError

Messages = Sequence[Mapping[str, str]]
Encoded = tuple[list[int], list[int]]  # token ids; loss mask (1: supervised)

_MARKS_ASSISTANT = re.compile(r"{%-?\s*generation\b")  # in a chat template
ROLES = ("system", "user", "assistant", "tool")


class Tokenizer(Protocol):
    """What the data pipeline needs of a tokenizer."""

    vocab_size: int  # ids are below it
    pad_id: int

    def encode_text(self, text: str) -> Encoded:
        """Ids and loss mask of a plain document."""

    def encode_chat(self, messages: Messages) -> Encoded:
        """Ids and loss mask of a conversation."""


class ByteTokenizer:
    """The 256 bytes of UTF-8, and eight ids beyond them.

    Text: its bytes, then EOS. A conversation: for each message the marker of its role, the bytes of its
    content, and END; then EOS. Supervised: the content and the END of the assistant's messages.
    """

    PAD, EOS, SYSTEM, USER, ASSISTANT, TOOL, END, MASK = range(256, 264)
    vocab_size: int = 264
    pad_id: int = PAD

    def encode_text(self, text: str) -> Encoded:
        ids = [*text.encode("utf-8"), self.EOS]
        return ids, [1] * len(ids)

    def encode_chat(self, messages: Messages) -> Encoded:
        ids: list[int] = []
        mask: list[int] = []
        for message in messages:
            content = [*message["content"].encode("utf-8"), self.END]
            ids += [self.SYSTEM + ROLES.index(message["role"]), *content]
            mask += [0, *([int(message["role"] == "assistant")] * len(content))]
        return [*ids, self.EOS], [*mask, 0]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without special ids; bytes that are no UTF-8 are replaced."""
        return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")


class FolderTokenizer:
    """A Hugging Face tokenizer from a local folder; nothing is downloaded and no code of the folder is run."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")):
            raise UserError(
                f'{folder}: no tokenizer there (tokenizer.json); set tokenizer to a folder that has one, or to "bytes"'
            )
        try:
            self._inner: Any = AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # the library raises what each of its readers happens to raise
            raise UserError(f"{folder}: the tokenizer cannot be loaded: {_first_line(error)}") from error
        if not self._inner.is_fast:
            raise UserError(
                f"{folder}: the tokenizer cannot say where its tokens are in the text; it needs tokenizer.json"
            )
        self.folder = folder
        self.vocab_size: int = len(self._inner)  # added tokens included, which `vocab_size` of the library is not
        pad = self._inner.pad_token_id
        eos = self._inner.eos_token_id
        self._eos: list[int] = [] if eos is None else [int(eos)]
        self.pad_id: int = int(pad if pad is not None else eos if eos is not None else 0)

    def encode_text(self, text: str) -> Encoded:
        ids = [*self._inner(text, add_special_tokens=False)["input_ids"], *self._eos]
        return ids, [1] * len(ids)

    def encode_chat(self, messages: Messages) -> Encoded:
        template = self._inner.chat_template
        if not template:
            raise UserError(f"{self.folder}: the tokenizer has no chat template, which conversations need")
        conversation = [dict(message) for message in messages]
        try:
            if _MARKS_ASSISTANT.search(str(template)):
                both = self._inner.apply_chat_template(
                    conversation, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
                )
                return list(both["input_ids"]), [int(flag) for flag in both["assistant_masks"]]
            return self._by_prefixes(conversation)
        except Exception as error:  # a template is a program: it can refuse a conversation, or fail on it
            raise UserError(f"the chat template of {self.folder} fails: {_first_line(error)}") from error

    def _by_prefixes(self, conversation: list[dict[str, str]]) -> Encoded:
        """Mask without help from the template: what an assistant message adds to the text before it.

        The prompt up to the message is rendered with the generation prompt, so the role header is not
        supervised. A template that rewrites earlier turns (dropping their reasoning, say) makes the shorter
        rendering no prefix of the longer one; the part they share is then taken.
        """
        text = self._render(conversation)
        spans: list[tuple[int, int]] = []
        for turn, message in enumerate(conversation):
            if message["role"] == "assistant":
                start = _shared(text, self._render(conversation[:turn], add_generation_prompt=True))
                spans.append((start, _shared(text, self._render(conversation[: turn + 1]))))
        encoded = self._inner(text, add_special_tokens=False, return_offsets_mapping=True)
        mask = [
            int(begin < end and any(start <= begin and end <= stop for start, stop in spans))
            for begin, end in encoded["offset_mapping"]
        ]
        return list(encoded["input_ids"]), mask

    def _render(self, conversation: list[dict[str, str]], *, add_generation_prompt: bool = False) -> str:
        if not conversation:
            return ""
        rendered: str = self._inner.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=add_generation_prompt
        )
        return rendered


def load_tokenizer(tokenizer: str, target_model: str) -> Tokenizer:
    """The tokenizer that the settings ask for.

    `tokenizer` is "bytes", a folder, or "" for the target model's own (bytes when the target is a random
    one). Raises `UserError` when a folder has no usable tokenizer.
    """
    if tokenizer == "bytes" or not (tokenizer or target_model):
        return ByteTokenizer()
    folder = Path(tokenizer or target_model).expanduser()
    if not folder.is_dir():
        raise UserError(f'tokenizer: {folder} is no folder; give a local folder, or "bytes"')
    return FolderTokenizer(folder)


def check_vocabulary(tokenizer: Tokenizer, embedding_rows: int) -> None:
    """`UserError` when the tokenizer has ids that the embedding has no row for."""
    if tokenizer.vocab_size > embedding_rows:
        raise UserError(
            f"the tokenizer has {tokenizer.vocab_size} ids, the embedding only {embedding_rows} rows; "
            f"set vocab_size to {tokenizer.vocab_size} or more, or use the tokenizer of the target model"
        )


def _shared(text: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
