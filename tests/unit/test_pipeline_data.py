"""Reading documents: what is accepted, what is refused and how it is named, and the built-in corpus."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UserError
from harness.pipeline.data import CORPUS, Document, load_documents
from harness.pipeline.tokenizer import ByteTokenizer

GOOD = '{"text": "two words"}'


def load(path: Path) -> list[Document]:
    return load_documents(str(path), ByteTokenizer())


def test_text_and_conversations_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    chat = {"conversations": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hej"}]}
    file.write_text(GOOD + "\n" + json.dumps(chat) + "\n")
    text, talk = load(file)
    assert ByteTokenizer().decode(text.ids) == "two words"
    assert sum(text.loss_mask) == len(text)
    assert sum(talk.loss_mask) == len("Hej") + 1


def test_a_folder_is_its_jsonl_files_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "ignored.txt"):
        (tmp_path / name).write_text(json.dumps({"text": f"from {name}"}))
    assert [ByteTokenizer().decode(d.ids) for d in load(tmp_path)] == ["from a.jsonl", "from b.jsonl"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "cut', "not JSON"),
        ("", "empty line"),
        ("   ", "empty line"),
        ("[1, 2]", "not a list"),
        ("null", "not null"),
        ("7", "not a number"),
        ("true", "not a boolean"),
        ('{"text": 3}', '"text" must be a string, not a number'),
        ('{"text": ""}', '"text" is empty'),
        ('{"text": " \\n"}', '"text" is empty'),
        ('{"text": "\\ud800"}', "half a surrogate pair"),
        ('{"txt": "x"}', 'did you mean "text"?'),
        ("{}", 'neither "text" nor "conversations"'),
        ('{"text": "x", "conversations": []}', 'both "text" and "conversations"'),
        ('{"conversations": "hello"}', "must be a list, not a string"),
        ('{"conversations": []}', '"conversations" is empty'),
        ('{"conversations": ["hello"]}', "message 1 must be an object, not a string"),
        ('{"conversations": [{"role": "user"}]}', 'message 1 has no "content"'),
        ('{"conversations": [{"content": "x"}]}', 'message 1 has no "role"'),
        ('{"conversations": [{"role": "asistant", "content": "x"}]}', 'did you mean "assistant"?'),
        ('{"conversations": [{"role": ["user"], "content": "x"}]}', "message 1 has role"),
        ('{"conversations": [{"role": "user", "content": null}]}', '"content" must be a string, not null'),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(UserError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(GOOD.encode() + b'\n{"text": "caf\xe9"}\n')
    with pytest.raises(UserError, match=r"latin.jsonl:2: not UTF-8"):
        load(file)


def test_a_file_that_is_missing_or_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UserError, match="no documents there"):
        load(tmp_path / "empty.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="no documents there"):
        load(tmp_path / "folder")


def test_data_that_nothing_can_be_learnt_from(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"conversations": [{"role": "user", "content": "Is anybody there?"}]}))
    with pytest.raises(UserError, match="nothing to learn"):
        load(file)


@given(st.integers(1, 300), st.integers(1, 64))
def test_pieces_are_whole_even_and_within_the_budget(length: int, budget: int) -> None:
    document = Document(tuple(range(length)), (1,) * length)
    pieces = document.pieces(budget)
    assert tuple(i for piece in pieces for i in document.ids[piece]) == document.ids
    lengths = [piece.stop - piece.start for piece in pieces]
    assert max(lengths) <= budget
    assert max(lengths) - min(lengths) <= 1
    assert len(pieces) == -(-length // budget)


def test_the_corpus_is_there_and_varied() -> None:
    documents = load_documents("", ByteTokenizer())
    size = sum(file.stat().st_size for file in CORPUS.glob("*.jsonl"))
    assert size >= 60_000
    chats = (CORPUS / "chat.jsonl").read_text().splitlines()
    assert len(chats) >= 36
    assert 150 <= len(documents) - len(chats) <= 300
    assert len({document.ids for document in documents}) == len(documents)
    assert min(map(len, documents)) < 50 < 500 < max(map(len, documents))
