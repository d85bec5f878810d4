"""Read what the model answers: token ids to reasoning, content and tool calls, at once or as they come.

Markers are recognised by their ids. Text that only looks like a marker has other ids and stays text, so a model that
quotes a user's `<|open|>tools<|sep|>` calls nothing.

How a faulty answer is read is fixed, and each fault is named in `problems`:

    think not closed before response or tools    the reasoning ends there; the rest is read as usual
    a tool that was not declared                 the call is left out of tool_calls and never shown as text
    an argument that is not JSON                 its text becomes a JSON string
    an unknown tag, a stray special token        it is left out, the text around it stays

Text between the calls of a tools block is left out. An answer that ends inside a call, cut off or not, leaves that call
in `incomplete_call`, not in `tool_calls`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ascend_k3.tokenizer import K3Tokenizer, StreamDecoder

_Place = Literal["reasoning", "content", "value", "json", "nowhere"]
_ATTRIBUTE = re.compile(r'\s([^\s="]+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What became known with some token ids.

    kind: `reasoning` and `content` add text to it; `call` opens tool call number `index` (from 0), its text is the
    tool's name; `arguments` adds to the arguments; `call_end` closes it; `problem` names a fault; `finished` is the end
    of the turn.
    """

    kind: Literal["reasoning", "content", "call", "arguments", "call_end", "problem", "finished"]
    text: str = ""
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call. `arguments` is a JSON text, or what the model wrote in its place; `index` counts from 0."""

    name: str
    arguments: str
    index: int


@dataclass(frozen=True, kw_only=True)
class AssistantTurn:
    """A parsed answer. `finished` is False when it was cut off: then this is what is complete so far."""

    reasoning_content: str
    content: str
    tool_calls: tuple[ToolCall, ...]
    incomplete_call: ToolCall | None
    problems: tuple[str, ...]
    finished: bool

    @classmethod
    def from_deltas(cls, deltas: Iterable[Delta]) -> AssistantTurn:
        """Join the deltas of one answer."""
        texts: dict[str, list[str]] = {"reasoning": [], "content": [], "problem": [], "arguments": []}
        calls: list[ToolCall] = []
        name = ""
        call_is_open = finished = False
        for delta in deltas:
            if delta.kind in texts:
                texts[delta.kind].append(delta.text)
            elif delta.kind == "call":
                name, call_is_open = delta.text, True
            elif delta.kind == "call_end":
                calls.append(ToolCall(name=name, arguments="".join(texts["arguments"]), index=delta.index))
                texts["arguments"], call_is_open = [], False
            else:
                finished = True
        rest = ToolCall(name=name, arguments="".join(texts["arguments"]), index=len(calls)) if call_is_open else None
        return cls(
            reasoning_content="".join(texts["reasoning"]),
            content="".join(texts["content"]),
            tool_calls=tuple(calls),
            incomplete_call=rest,
            problems=tuple(texts["problem"]),
            finished=finished,
        )


def parse_assistant(
    ids: Sequence[int], tokenizer: K3Tokenizer, *, thinking: bool = True, tool_names: Collection[str] | None = None
) -> AssistantTurn:
    """Parse the ids that the model produced after the generation prompt (or a whole assistant message).

    thinking: whether the prompt opened the think channel; else it opened the response.
    tool_names: the declared tools; a call of any other is refused. None takes every call.
    """
    parser = AssistantParser(tokenizer, thinking=thinking, tool_names=tool_names)
    return AssistantTurn.from_deltas([*parser.feed(ids), *parser.finish()])


class AssistantParser:
    """The incremental form of `parse_assistant`: however the ids are split, the joined deltas are the same."""

    def __init__(
        self, tokenizer: K3Tokenizer, *, thinking: bool = True, tool_names: Collection[str] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._tool_names = tool_names
        special = tokenizer.special_ids
        self._open, self._close, self._sep = special["<|open|>"], special["<|close|>"], special["<|sep|>"]
        self._ends = {special["<|end_of_msg|>"], special.get("[EOS]", special["<|end_of_msg|>"])}
        self._utf8 = StreamDecoder(tokenizer)
        self._deltas: list[Delta] = []
        # Where text goes: reasoning, content, the value of an argument, the json of a call, or nowhere.
        self._place: _Place = "reasoning" if thinking else "content"
        self._tag: tuple[int, list[int]] | None = None  # the marker and the ids of a tag that is not complete yet
        self._num_calls = 0
        self._call: str | None = None  # the tool of the open call
        self._refused = False  # the open call is left out
        self._started: Literal["no", "arguments", "json"] = "no"  # what the open call has had
        self._key = self._type = ""  # of the open argument
        self._value: list[str] = []  # its text so far; a string is not held back
        self._finished = False

    def feed(self, ids: Iterable[int]) -> list[Delta]:
        """What became known with these ids; neighbours of one kind are joined. After the end of the turn, nothing."""
        text: list[int] = []
        for token_id in ids:
            if self._finished:
                break
            if not self._tokenizer.is_special(token_id):
                (text if self._tag is None else self._tag[1]).append(token_id)
                continue
            self._on_text(self._utf8.feed(text))
            text = []
            self._on_special(token_id)
        self._on_text(self._utf8.feed(text))
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> list[Delta]:
        """The last deltas, when no more ids come: bytes that never became a character."""
        if not self._finished:
            self._end_text()
        deltas, self._deltas = self._deltas, []
        return deltas

    def _on_special(self, token_id: int) -> None:
        if token_id in self._ends:
            self._drop_tag()
            self._end_text()
            self._end_turn()
        elif token_id in (self._open, self._close):
            self._drop_tag()
            self._end_text()
            self._tag = (token_id, [])
        elif token_id == self._sep and self._tag is not None:
            marker, tag = self._tag
            self._tag = None
            self._on_tag(marker == self._open, self._tokenizer.decode(tag))
        else:
            self._problem(f"a stray {self._tokenizer.decode([token_id])} was left out")

    def _emit(self, kind: Literal["reasoning", "content", "arguments"], text: str) -> None:
        index = self._num_calls - 1 if kind == "arguments" else 0
        if self._deltas and self._deltas[-1].kind == kind and text:
            text = self._deltas.pop().text + text
        if text:
            self._deltas.append(Delta(kind=kind, text=text, index=index))

    def _problem(self, text: str) -> None:
        self._deltas.append(Delta(kind="problem", text=text))

    def _drop_tag(self) -> None:
        if self._tag is not None:
            self._problem(f"a tag without its end was left out: {self._tokenizer.decode(self._tag[1])!r}")
            self._tag = None

    def _on_text(self, text: str) -> None:
        if not text or self._place == "nowhere":
            return
        if self._place == "reasoning" or self._place == "content":
            self._emit(self._place, text)
        elif self._refused:
            return
        elif self._place == "json":
            self._emit("arguments", text)
        elif self._type == "string":
            self._emit("arguments", json.dumps(text, ensure_ascii=False)[1:-1])
        else:
            self._value.append(text)

    def _end_text(self) -> None:
        self._on_text(self._utf8.flush())

    def _on_tag(self, opens: bool, tag: str) -> None:
        name = tag.split(maxsplit=1)[0] if tag.strip() else ""
        attributes = {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _ATTRIBUTE.findall(tag)}
        if name in ("think", "response", "tools", "message"):
            self._on_block(opens, name)
        elif name == "call":
            self._end_call()
            if opens:
                self._begin_call(attributes.get("tool"))
        elif name in ("argument", "json") and self._call is not None:
            self._end_value()
            if opens:
                self._begin_value(name, attributes)
        else:
            self._problem(f"a tag that has no place here was left out: {tag!r}")

    def _on_block(self, opens: bool, name: str) -> None:
        """A tag of the outer level: whatever is open inside ends with it."""
        if opens and name in ("response", "tools") and self._place == "reasoning":
            self._problem(f"the reasoning was not closed before {name}")
        self._end_call()
        if name == "message" and not opens:
            self._end_turn()
        elif opens and name == "think":
            self._place = "reasoning"
        elif opens and name == "tools":
            self._place = "nowhere"
        else:  # in the response, and between blocks, where a model that forgot to open the response would write it
            self._place = "content"

    def _begin_call(self, tool: str | None) -> None:
        if self._place == "reasoning":
            self._problem("the reasoning was not closed before a call")
        self._place, self._started = "nowhere", "no"
        self._call = tool or ""
        self._refused = not tool or (self._tool_names is not None and tool not in self._tool_names)
        if not tool:
            self._problem("a call that names no tool was refused")
        elif self._refused:
            self._problem(f"a call of the tool {tool!r}, which was not declared, was refused")
        else:
            self._deltas.append(Delta(kind="call", text=tool, index=self._num_calls))
            self._num_calls += 1

    def _begin_value(self, name: str, attributes: dict[str, str]) -> None:
        if self._started == "json" or (name == "json" and self._started == "arguments"):
            self._problem(f"a second form of the arguments of {self._call!r} was left out")
            return
        if name == "json":
            self._place, self._started = "json", "json"
            return
        self._key, self._type, self._value = attributes.get("key", ""), attributes.get("type", "string"), []
        if not self._refused:
            before, after = "{" if self._started == "no" else ", ", ': "' if self._type == "string" else ": "
            self._emit("arguments", before + json.dumps(self._key, ensure_ascii=False) + after)
        self._place, self._started = "value", "arguments"

    def _end_value(self) -> None:
        if self._place == "value" and not self._refused:
            text = "".join(self._value)
            if self._type == "string":
                self._emit("arguments", '"')
            elif _is_json(text):
                self._emit("arguments", text)
            else:
                self._problem(f"argument {self._key!r} of {self._call!r} is not JSON and was kept as text")
                self._emit("arguments", json.dumps(text, ensure_ascii=False))
        self._place = "nowhere"

    def _end_call(self) -> None:
        if self._call is None:
            return
        self._end_value()
        if not self._refused:
            self._emit("arguments", {"no": "{}", "arguments": "}", "json": ""}[self._started])
            self._deltas.append(Delta(kind="call_end", index=self._num_calls - 1))
        self._call = None

    def _end_turn(self) -> None:
        self._finished = True
        self._deltas.append(Delta(kind="finished"))


def _is_json(text: str) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True
