"""Documents packed into sequences of a token budget."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.pipeline.data import Document

PADDING = -1  # document id of the positions that hold no document


@dataclass(frozen=True)
class Packed:
    """A batch of Bt sequences of length S, each one or more whole documents and then padding."""

    ids: Tensor  # [Bt, S] int64; the tokenizer's pad id where there is no document
    loss_mask: Tensor  # [Bt, S] bool: supervised tokens
    document_ids: Tensor  # [Bt, S] int64: 0, 1, … within a sequence, PADDING beyond the last
    positions: Tensor  # [Bt, S] int64: restart at 0 with each document (and with the padding)
    lengths: tuple[tuple[int, ...], ...]  # of the documents of each sequence, in tokens

    @property
    def tokens(self) -> int:
        """Real tokens, padding not counted."""
        return sum(map(sum, self.lengths))


def pack(sequences: Sequence[Sequence[Document]], *, length: int, pad_id: int) -> Packed:
    """Lay out each list of documents one after the other, and pad to `length` (0: to the longest of the batch)."""
    lengths = tuple(tuple(len(document) for document in documents) for documents in sequences)
    longest = max(map(sum, lengths))
    if 0 < length < longest:
        raise ValueError(f"{longest} tokens do not fit into {length}")
    shape = (len(sequences), length or longest)
    ids = torch.full(shape, pad_id)
    loss_mask = torch.zeros(shape, dtype=torch.bool)
    document_ids = torch.full(shape, PADDING)
    positions = torch.zeros(shape, dtype=torch.int64)
    for row, documents in enumerate(sequences):
        start = 0
        for number, document in enumerate(documents):
            stop = start + len(document)
            ids[row, start:stop] = torch.tensor(document.ids)
            loss_mask[row, start:stop] = torch.tensor(document.loss_mask, dtype=torch.bool)
            document_ids[row, start:stop] = number
            positions[row, start:stop] = torch.arange(len(document))
            start = stop
        positions[row, start:] = torch.arange(shape[1] - start)
    return Packed(ids, loss_mask, document_ids, positions, lengths)


class PackedStream:
    """The endless stream of batches of one drafter; the same for the same arguments.

    A document longer than the budget is split (`Document.pieces`), and its pieces are documents of their own. All are
    shuffled anew for each epoch and dealt out in turn: drafter i of M gets those numbered i, i + M, i + 2M, … of that
    endless row. A sequence takes what is dealt until the next does not fit; that one begins the next sequence.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        *,
        drafter: int,
        drafters: int,
        budget: int,
        batch: int,
        padded: bool,
        pad_id: int,
        seed: int,
    ) -> None:
        self.budget = budget
        self._documents = documents
        self._pieces = [(i, piece) for i, document in enumerate(documents) for piece in document.pieces(budget)]
        self._drafter, self._drafters = drafter, drafters
        self._batch = batch
        self._length = budget if padded else 0
        self._pad_id = pad_id
        self._seed = seed
        self._sequences = self._make_sequences()

    def __iter__(self) -> Iterator[Packed]:
        return self

    def restarted(self) -> PackedStream:
        """The same stream from its beginning; this one stays where it is."""
        again = copy.copy(self)
        again._sequences = again._make_sequences()
        return again

    def __next__(self) -> Packed:
        sequences = [next(self._sequences) for _ in range(self._batch)]
        return pack(sequences, length=self._length, pad_id=self._pad_id)

    def _make_sequences(self) -> Iterator[list[Document]]:
        sequence: list[Document] = []
        room = self.budget
        for document in self._dealt():
            if len(document) > room:
                yield sequence
                sequence, room = [], self.budget
            sequence.append(document)
            room -= len(document)

    def _dealt(self) -> Iterator[Document]:
        number, epoch = self._drafter, -1
        order: list[int] = []
        while True:
            turn, place = divmod(number, len(self._pieces))
            if turn != epoch:
                # From the identity each time: an epoch's order does not depend on which epochs came before.
                order = list(range(len(self._pieces)))
                random.Random(f"{self._seed}/{turn}").shuffle(order)
                epoch = turn
            document, piece = self._pieces[order[place]]
            yield Document(self._documents[document].ids[piece], self._documents[document].loss_mask[piece])
            number += self._drafters
