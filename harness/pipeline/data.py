"""Documents from JSON Lines files: `{"text": …}` or `{"conversations": [{"role": …, "content": …}, …]}`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.core.errors import UserError, nearest
from harness.pipeline.tokenizer import ROLES, Tokenizer

CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Document:
    """Token ids, and for each whether it is supervised."""

    ids: tuple[int, ...]
    loss_mask: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def pieces(self, budget: int) -> list[slice]:
        """Where to cut: the fewest pieces of at most `budget` tokens, equal in length to within one token.

        Equal pieces rather than full ones and a rest: a rest of two tokens would be worth nothing, and pieces
        that are nearly all exactly `budget` long would make sequences of "variable" length alike.
        """
        count = -(-len(self) // budget)
        cuts = [len(self) * i // count for i in range(count + 1)]
        return [slice(a, b) for a, b in pairwise(cuts)]


def load_documents(data: str, tokenizer: Tokenizer) -> list[Document]:
    """All documents of a file, or of the `*.jsonl` files of a folder in order of name; "" is the built-in
    corpus.

    Raises `UserError` naming file and line for a line that is no document, and the file when it holds none.
    """
    path = Path(data).expanduser() if data else CORPUS
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    documents = [document for file in files for document in _read(file, tokenizer)]
    if not documents:
        raise UserError(f"{path}: no documents there (a .jsonl file with one JSON object a line is expected)")
    if not any(first and second for d in documents for first, second in pairwise(d.loss_mask)):
        raise UserError(f"{path}: nothing to learn there: no document has two supervised tokens in a row")
    return documents


def _read(file: Path, tokenizer: Tokenizer) -> Iterator[Document]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error
    for number, line in enumerate(content.splitlines(), start=1):
        where = f"{file}:{number}"
        record = _parse(line, where)
        if "text" in record:
            ids, mask = tokenizer.encode_text(_text(record["text"], "text", where))
        else:
            messages = _messages(record, where)
            try:
                ids, mask = tokenizer.encode_chat(messages)
            except UserError as error:
                raise UserError(f"{where}: {error}") from error
        yield Document(tuple(ids), tuple(mask))


def _parse(line: bytes, where: str) -> dict[str, Any]:
    if not line.strip():
        raise UserError(f"{where}: empty line; each line holds one JSON object")
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 (byte {error.start})") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: a JSON object is expected, not {_kind(record)}")
    if ("text" in record) == ("conversations" in record):
        if "text" in record:
            raise UserError(f'{where}: has both "text" and "conversations"; one is expected')
        hints = [nearest(key, ("text", "conversations")) for key in record]
        raise UserError(f'{where}: neither "text" nor "conversations"{next(filter(None, hints), "")}')
    return record


def _text(value: object, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f'{where}: "{key}" must be a string, not {_kind(value)}')
    if not value.strip():
        raise UserError(f'{where}: "{key}" is empty')
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f'{where}: "{key}" holds half a surrogate pair at character {error.start}') from error
    return value


def _messages(record: dict[str, Any], where: str) -> list[dict[str, str]]:
    messages = record["conversations"]
    if not isinstance(messages, list):
        raise UserError(f'{where}: "conversations" must be a list, not {_kind(messages)}')
    if not messages:
        raise UserError(f'{where}: "conversations" is empty')
    checked = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            raise UserError(f"{where}: message {number} must be an object, not {_kind(message)}")
        if missing := {"role", "content"} - message.keys():
            raise UserError(f'{where}: message {number} has no "{min(missing)}"')
        role = message["role"]
        if role not in ROLES:
            raise UserError(
                f"{where}: message {number} has role {json.dumps(role)}{nearest(str(role), ROLES)}; "
                f"known are {', '.join(ROLES)}"
            )
        checked.append({"role": role, "content": _text(message["content"], "content", f"{where}: message {number}")})
    return checked


def _kind(value: object) -> str:
    """What JSON calls the type of `value`."""
    if value is None:
        return "null"
    names = {bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")
