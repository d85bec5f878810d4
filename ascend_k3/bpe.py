"""A byte-pair trainer, for the small tokenizers that small checkpoints carry, and the files that hold one.

The release's `tiktoken.model` belongs to the release. A checkpoint that this project makes has ranks that were trained
here, in the same file format and with the same pre-tokenizer, so that the same code reads both.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import regex  # type: ignore[import-untyped]

from ascend_k3.files import replaced, write_json
from ascend_k3.tokenizer import PRE_TOKENIZER, check_ranks, released_names

# Markers of the chat format, which the release does not flag as special: readers that drop special tokens keep them.
_NOT_FLAGGED = ("<|open|>", "<|close|>", "<|sep|>")


def train_bpe(texts: Iterable[str], num_ranks: int) -> list[bytes]:
    """Tokens in rank order: the 256 single bytes, then what byte-pair encoding adds to them.

    Each step makes a token of the pair of neighbours that is most frequent within the pre-tokens of `texts`; of equals,
    of the one whose bytes come first. A pair is known by its joined bytes, as in tiktoken, which merges two neighbours
    whenever their join is a token: words are always cut here as tiktoken would cut them with the ranks so far. The same
    texts give the same ranks.

    Raises: ValueError when `num_ranks` is below 256 or the texts are too short to give that many.
    """
    if num_ranks < 256:
        raise ValueError(f"train_bpe: num_ranks must be at least 256, one for each byte, got {num_ranks}.")
    split = regex.compile(PRE_TOKENIZER, flags=regex.VERSION1)  # version 1 has the set intersection `&&`
    counts = Counter(match.group().encode() for text in texts for match in split.finditer(text))
    words = {word: [bytes([byte]) for byte in word] for word in sorted(counts)}
    ranks = {bytes([byte]): byte for byte in range(256)}
    pairs: Counter[bytes] = Counter()
    holders: dict[bytes, set[bytes]] = {}  # joined pair -> the words in which it was seen
    for word, parts in words.items():
        for pair in _joined(parts):
            pairs[pair] += counts[word]
            holders.setdefault(pair, set()).add(word)
    while len(ranks) < num_ranks:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None:
            raise ValueError(f"train_bpe: the texts give {len(ranks)} ranks, not {num_ranks}; give more text.")
        ranks[best] = len(ranks)
        for word in holders.pop(best):
            for pair in _joined(words[word]):
                pairs[pair] -= counts[word]
                if not pairs[pair]:
                    del pairs[pair]
            words[word] = _cut(word, ranks)
            for pair in _joined(words[word]):
                pairs[pair] += counts[word]
                holders.setdefault(pair, set()).add(word)
    return list(ranks)


def write_tokenizer(folder: str | Path, ranks: Sequence[bytes], vocab_size: int) -> None:
    """Write `tiktoken.model` and `tokenizer_config.json`: special tokens above the ranks, at the release's places.

    A file is complete or is not there: each is written under another name and then renamed.

    Raises: CheckpointError when a single byte has no rank, a token has two, or `vocab_size` leaves fewer than 24 ids.
    """
    folder = Path(folder)
    check_ranks(ranks, "write_tokenizer")
    names = released_names(len(ranks), vocab_size - len(ranks))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    config = {
        "added_tokens_decoder": {
            str(token_id): {"content": name, **flags, "special": name not in _NOT_FLAGGED}
            for token_id, name in sorted(names.items())
        },
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "clean_up_tokenization_spaces": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    model = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(ranks))
    with replaced(folder / "tiktoken.model") as file:
        file.write_bytes(model)
    write_json(folder / "tokenizer_config.json", config)


def _joined(parts: list[bytes]) -> list[bytes]:
    return [left + right for left, right in zip(parts, parts[1:], strict=False)]


def _cut(word: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The tokens of one pre-token: join the neighbours of lowest rank, the leftmost first, until none have a rank."""
    parts = [bytes([byte]) for byte in word]
    while True:
        known = [(ranks[pair], place) for place, pair in enumerate(_joined(parts)) if pair in ranks]
        if not known:
            return parts
        _, place = min(known)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
