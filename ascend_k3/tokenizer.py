"""The tokenizer of Kimi K3: byte-pair ranks from `tiktoken.model` and a block of reserved ids above them.

A checkpoint folder has `tiktoken.model` (one line per token: base64 of its bytes, a space, its rank) and
`tokenizer_config.json`, whose `added_tokens_decoder` names reserved ids. Ids run: ranks 0 to n-1, then the reserved
ids, up to the vocabulary size. In the release n is 163,584 and 256 ids are reserved.

Text is never searched for special tokens unless the caller asks for it, so what a user writes cannot become a marker.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tiktoken

from ascend_k3.files import read_object
from ascend_k3.ops.errors import CheckpointError

# How text is cut before byte pairs are merged; it defines the format. Source: tokenizer of the Kimi K2 and K3 releases.
PRE_TOKENIZER = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

RELEASED_RESERVED = 256  # reserved ids of the release: 163584 to 163839

# Names of the release by their place in the reserved block; negative places count from its end.
RELEASED_NAMES = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    -2: "[UNK]",
    -1: "[PAD]",
}
FEWEST_RESERVED = 24  # places 0 to 21, [UNK] and [PAD]

_REQUIRED = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[PAD]")

# tiktoken panics on very long input and takes quadratic time on one long word, so the released tokenizer encodes long
# text in pieces. The cuts are visible in the ids, so they are the same here.
MAX_CHUNK = 400_000  # characters
MAX_RUN = 25_000  # consecutive characters that are all whitespace, or all not

_RUN = re.compile(r"\s+|\S+")


class K3Tokenizer:
    """Text to token ids and back.

    Attributes:
        vocab_size: ranks and reserved ids together.
        special_ids: name -> id of every reserved id; one without a name is `<|reserved_token_{id}|>`.
        folder: where it was read from.
    """

    def __init__(self, ranks: Sequence[bytes], special_ids: Mapping[str, int], folder: Path) -> None:
        """Build from tokens in rank order and the name of each reserved id; `from_pretrained` is the checked way in."""
        self.vocab_size = len(ranks) + len(special_ids)
        self.special_ids = dict(special_ids)
        self.folder = folder
        self._num_ranks = len(ranks)
        self._bytes = [*ranks, *(name.encode() for name in sorted(special_ids, key=special_ids.__getitem__))]
        self._encoding = tiktoken.Encoding(
            "kimi_k3",
            pat_str=PRE_TOKENIZER,
            mergeable_ranks={token: rank for rank, token in enumerate(ranks)},
            special_tokens=self.special_ids,
        )

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> K3Tokenizer:
        """Read the tokenizer of a checkpoint folder.

        The vocabulary ends where `config.json` says; without one, at the highest id that `tokenizer_config.json` names
        ([PAD] is the last). Without `tokenizer_config.json` the names are those of the release; without both, 256 ids
        are reserved.

        Raises: FileNotFoundError for a folder that does not exist; CheckpointError for a file that is missing or wrong.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder; give a checkpoint folder with a tiktoken.model.")
        ranks = _read_ranks(folder / "tiktoken.model")
        names = _reserved_names(folder, len(ranks))
        special_ids = {name: len(ranks) + place for place, name in enumerate(names)}
        return cls(ranks, special_ids, folder)

    @property
    def pad_id(self) -> int:
        """The id of [PAD]: the last one, not 0."""
        return self.special_ids["[PAD]"]

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end generation, read from the tokenizer's folder: see `stop_token_ids`."""
        return stop_token_ids(self.folder)

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """Token ids of `text`.

        Args:
            text: any text. A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD, as in the released tokenizer.
            allow_special: whether the name of a special token becomes its id. False reads it as ordinary text; True is
                only for text that the program itself wrote.

        Text is encoded in chunks of at most 400,000 characters, cut further wherever more than 25,000 consecutive
        characters are all whitespace or all not, as the released tokenizer does.
        """
        if not isinstance(text, str):
            raise ValueError(f"encode: text must be a str, got {type(text).__name__}.")
        ids: list[int] = []
        for piece in _pieces(text):
            if allow_special:
                ids += self._encoding.encode(piece, allowed_special="all")
            else:
                ids += self._encoding.encode_ordinary(piece)
        return ids

    def encode_segments(self, segments: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of (text, allow_special) segments; each is encoded by itself, so no token spans two."""
        ids: list[int] = []
        for text, allow_special in segments:
            ids += self.encode(text, allow_special)
        return ids

    def decode_bytes(self, ids: Iterable[int], skip_special_tokens: bool = False) -> bytes:
        """The bytes of token ids; with `skip_special_tokens` the reserved ids give none.

        Raises: ValueError for an id outside the vocabulary.
        """
        parts = []
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise ValueError(
                    f"decode: token id {token_id} is not in the vocabulary of {self.vocab_size} ids, from 0."
                )
            if not (skip_special_tokens and token_id >= self._num_ranks):
                parts.append(self._bytes[token_id])
        return b"".join(parts)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids, skip_special_tokens).decode("utf-8", errors="replace")

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a reserved one, above the ranks."""
        return token_id >= self._num_ranks


class StreamDecoder:
    """Decode ids as they come; what `feed` and `flush` return, joined, is `decode` of all ids.

    A character's bytes may lie in several tokens: bytes that are not yet a whole character are held back.
    """

    def __init__(self, tokenizer: K3Tokenizer, skip_special_tokens: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, ids: Iterable[int]) -> str:
        """The text that became complete with these ids."""
        return self._utf8.decode(self._tokenizer.decode_bytes(ids, self._skip))

    def flush(self) -> str:
        """The end of the text: U+FFFD for bytes that never became a character, else nothing. Ready for a new text."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


def stop_token_ids(folder: str | Path) -> tuple[int, ...]:
    """The ids that end generation, ascending: all that the files of a checkpoint folder name.

    The union of `eos_token_id` in generation_config.json and in config.json (top level and text_config) and of
    `eos_token` in tokenizer_config.json: each of them alone misses some. In the release: 163585 and 163586.

    Raises: CheckpointError when an entry is not a token id, or when no file names one.
    """
    folder = Path(folder)
    generation_config = _optional_object(folder / "generation_config.json")
    config = _optional_object(folder / "config.json")
    text_config = config.get("text_config")
    sources = [
        ("generation_config.json: eos_token_id", generation_config.get("eos_token_id")),
        ("config.json: eos_token_id", config.get("eos_token_id")),
    ]
    if isinstance(text_config, dict):
        sources.append(("config.json: text_config.eos_token_id", text_config.get("eos_token_id")))
    found: set[int] = set()
    for where, value in sources:
        for token_id in value if isinstance(value, list) else [value]:
            if token_id is None:
                continue
            if type(token_id) is not int or token_id < 0:
                raise CheckpointError(f"{folder}/{where} is {value!r}; it must be a token id or a list of token ids.")
            found.add(token_id)
    tokenizer_config = _optional_object(folder / "tokenizer_config.json")
    eos = tokenizer_config.get("eos_token")
    if eos is not None:
        name = eos.get("content") if isinstance(eos, dict) else eos
        ids = [token_id for token_id, other in _added_tokens(folder / "tokenizer_config.json").items() if other == name]
        if not ids:
            raise CheckpointError(
                f"{folder / 'tokenizer_config.json'}: eos_token is {name!r}, which added_tokens_decoder does not have."
            )
        found.update(ids)
    if not found:
        raise CheckpointError(
            f"{folder}: none of generation_config.json, config.json and tokenizer_config.json names a stop token; "
            "without one generation would not end by itself."
        )
    return tuple(sorted(found))


def _pieces(text: str) -> Iterator[str]:
    """Cut `text` as the released tokenizer does before it calls tiktoken."""
    for start in range(0, len(text), MAX_CHUNK):
        chunk = text[start : start + MAX_CHUNK]
        cuts = [0]
        if len(chunk) > MAX_RUN:
            for run in _RUN.finditer(chunk):
                cuts += range(run.start() + MAX_RUN, run.end(), MAX_RUN)
        for left, right in zip(cuts, [*cuts[1:], len(chunk)], strict=True):
            yield chunk[left:right]


def _read_ranks(file: Path) -> list[bytes]:
    """The tokens of a tiktoken.model in the order of their ranks."""
    if not file.is_file():
        raise CheckpointError(f"{file} is missing; copy it from the release this checkpoint was made from.")
    by_rank: dict[int, bytes] = {}
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank_text = line.split()
            token, rank = base64.b64decode(token, validate=True), int(rank_text)
        except (ValueError, binascii.Error) as error:
            raise CheckpointError(
                f"{file}, line {number}: {line[:60]!r} is not a base64 token, a space and a rank; fetch the file again."
            ) from error
        if rank in by_rank:
            raise CheckpointError(f"{file}, line {number}: rank {rank} is given a second time; fetch the file again.")
        by_rank[rank] = token
    missing = next((rank for rank in range(len(by_rank)) if rank not in by_rank), None)
    if missing is not None:
        raise CheckpointError(f"{file}: rank {missing} is missing among {len(by_rank)} ranks; fetch the file again.")
    ranks = [by_rank[rank] for rank in range(len(by_rank))]
    check_ranks(ranks, str(file))
    return ranks


def check_ranks(ranks: Sequence[bytes], where: str) -> None:
    """Raise CheckpointError unless tokens are distinct and every single byte is one: then any text can be encoded."""
    seen: set[bytes] = set()
    for token in ranks:
        if token in seen:
            raise CheckpointError(f"{where}: token {token!r} has two ranks; a token has one.")
        seen.add(token)
    for byte in range(256):
        if bytes([byte]) not in seen:
            raise CheckpointError(
                f"{where}: the byte 0x{byte:02x} alone is not a token, so not every text can be encoded."
            )


def _reserved_names(folder: Path, num_ranks: int) -> list[str]:
    """The name of each reserved id, from the first one above the ranks to the end of the vocabulary."""
    file = folder / "tokenizer_config.json"
    named = _added_tokens(file) if file.is_file() else None
    vocab_size = _vocab_size(folder / "config.json", num_ranks)
    if vocab_size is None:
        vocab_size = max(named, default=num_ranks) + 1 if named is not None else num_ranks + RELEASED_RESERVED
    if named is None:
        named = released_names(num_ranks, vocab_size - num_ranks)
    for token_id, name in named.items():
        if not num_ranks <= token_id < vocab_size:
            raise CheckpointError(
                f"{file}: added_tokens_decoder gives {name!r} the id {token_id}; special tokens of this vocabulary "
                f"have ids {num_ranks} to {vocab_size - 1}."
            )
    if vocab_size - num_ranks > RELEASED_RESERVED and min(named, default=vocab_size) > num_ranks:
        raise CheckpointError(
            f"{folder / 'tiktoken.model'} has {num_ranks} ranks, but the first special token has id "
            f"{min(named, default=vocab_size)}; the file is cut off or belongs to another model: fetch it again."
        )
    names = [named.get(token_id, f"<|reserved_token_{token_id}|>") for token_id in range(num_ranks, vocab_size)]
    for name, count in Counter(names).items():
        if count > 1:
            raise CheckpointError(f"{file}: {count} ids are named {name!r}; a special token has one id.")
    for name in _REQUIRED:
        if name not in names:
            raise CheckpointError(
                f"{file}: added_tokens_decoder has no token {name!r}, which every Kimi K3 tokenizer has; take the file "
                "from the release this checkpoint was made from."
            )
    return names


def _vocab_size(file: Path, num_ranks: int) -> int | None:
    """`text_config.vocab_size` of a config.json; None where there is no such file."""
    if not file.is_file():
        return None
    config = read_object(file)
    text_config = config.get("text_config")
    vocab_size = text_config.get("vocab_size") if isinstance(text_config, dict) else None
    if type(vocab_size) is not int:
        raise CheckpointError(f"{file}: text_config.vocab_size is {vocab_size!r}; it must be the number of token ids.")
    if vocab_size <= num_ranks:
        raise CheckpointError(
            f"{file}: text_config.vocab_size is {vocab_size}, but tiktoken.model has {num_ranks} ranks and special "
            "tokens come above them; the two files belong to different models."
        )
    return vocab_size


def released_names(num_ranks: int, reserved: int) -> dict[int, str]:
    """id -> name of the special tokens, at the places that they have in the release."""
    if reserved < FEWEST_RESERVED:
        raise CheckpointError(
            f"{reserved} ids are reserved above {num_ranks} ranks; the release's special tokens need {FEWEST_RESERVED}."
        )
    return {num_ranks + place % reserved: name for place, name in RELEASED_NAMES.items()}


def _added_tokens(file: Path) -> dict[int, str]:
    """id -> name in `added_tokens_decoder` of a tokenizer_config.json."""
    added = _optional_object(file).get("added_tokens_decoder")
    if not isinstance(added, dict):
        raise CheckpointError(f"{file}: added_tokens_decoder must map ids to tokens, got {type(added).__name__}.")
    names: dict[int, str] = {}
    for key, entry in added.items():
        name = entry.get("content") if isinstance(entry, dict) else None
        if not key.isdecimal() or not isinstance(name, str) or not name:
            raise CheckpointError(f"{file}: added_tokens_decoder entry {key!r} must be a token id with a `content`.")
        names[int(key)] = name
    return names


def _optional_object(file: Path) -> dict[str, Any]:
    """The JSON object in `file`; an empty one where there is no such file."""
    return read_object(file) if file.is_file() else {}
