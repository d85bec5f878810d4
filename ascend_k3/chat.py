"""The chat format of Kimi K3 (XTML): messages to segments of text, and on to token ids.

    <|open|>message role="user"<|sep|>TEXT<|close|>message<|sep|><|end_of_msg|>

Only `<|open|>`, `<|close|>`, `<|sep|>` and `<|end_of_msg|>` are special tokens; tag names, attributes and text are
ordinary text. A rendering is therefore a list of segments, each with a flag: only the markers that are written here and
the image prompts that the program made are encoded with special tokens. Whatever a user, a tool or a tool's schema
says is encoded without, so it cannot open, close or end anything, whatever it looks like.

`chat_parser` reads what the model answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ascend_k3.tokenizer import K3Tokenizer

_Call = tuple[str | None, str, Mapping[str, Any] | str]  # id, name, arguments (a text where they are not a JSON object)

IMAGE_PLACEHOLDER = "<|kimi_image_placeholder|>"  # stands for an image whose prompt is not known yet; not a token

# What the system says in its own messages; the wording is part of the format that the model was trained on.
THINKING_EFFORTS = ("low", "high", "max")
_THINKING_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort={}`."
)
_TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"
_MORE_TOOLS = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
    "```json\n{}\n```"
)
_TOOL_CHOICE = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
_RESPONSE_FORMAT = (
    "The system is invoked with `response_format={}`.\nYour response must be raw JSON data without markdown code "
    "blocks (```json) or any additional formatting."
)
_SCHEMA = "\nThe JSON data must match the following schema:\n```json\n{}\n```"


class Segment(NamedTuple):
    """A piece of a rendering; `allow_special` says whether special tokens are recognised in it."""

    text: str
    allow_special: bool


def render(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    thinking: bool = True,
    thinking_effort: str | None = None,
    tool_choice: str | None = None,
    response_format: Mapping[str, Any] | None = None,
    image_prompts: Sequence[str] | None = None,
    add_generation_prompt: bool = True,
) -> list[Segment]:
    """The segments of a conversation, in order.

    Args:
        messages: as in the OpenAI API. `role` is system, user, assistant or tool; `content` is text or a list of text,
            image and image_url items (None is allowed in assistant and tool messages); the frames of one item are one
            image here. An assistant message may have `reasoning_content` (or `reasoning`) and `tool_calls`; the
            reasoning of earlier turns is kept, as the model expects. A tool message is named by the call that its
            `tool_call_id` belongs to, else by its `tool` or `name`, else by its position. A system message with `tools`
            in place of content declares more tools from there on.
        tools: tools declared at the start, as in the OpenAI API.
        thinking: whether the assistant has a think channel; without it, reasoning in the history is left out as well.
        thinking_effort: "low", "high", "max", or None to say nothing. Without thinking nothing is said.
        tool_choice: "required", "none", "auto" or None; the last two say nothing.
        response_format: of type "text", "json_object", or "json_schema" with the schema at ["json_schema"]["schema"].
        image_prompts: one text for each image, in the order of `order_tool_results(messages)`. They are encoded with
            special tokens. None leaves a placeholder for each image.
        add_generation_prompt: open the assistant's next message and its first channel, think or response.

    Raises: ValueError for a message, a tool or an option that the format has no form for.
    """
    out = _Writer(image_prompts)
    if tools:
        out.system("tool-declare", _TOOLS.format(_tool_list(tools, "tools")))
    if thinking_effort is not None:
        if thinking_effort not in THINKING_EFFORTS:
            raise ValueError(
                f"thinking_effort is {thinking_effort!r}; it must be {', '.join(THINKING_EFFORTS)} or None."
            )
        if thinking:
            out.system("thinking-effort", _THINKING_EFFORT.format(thinking_effort))
    _render_conversation(out, order_tool_results(messages), thinking)
    if tool_choice not in (None, "auto"):
        text = _TOOL_CHOICE.get(tool_choice) if isinstance(tool_choice, str) else None
        if text is None:
            raise ValueError(
                f"tool_choice is {tool_choice!r}; it must be auto, required or none: the format has no other."
            )
        out.system("tool-choice", text)
    if response_format is not None:
        _render_response_format(out, response_format)
    if image_prompts is not None and out.images != len(image_prompts):
        raise ValueError(f"image_prompts has {len(image_prompts)} texts, but the messages have {out.images} images.")
    if add_generation_prompt:
        out.open("message", role="assistant")
        out.open("think" if thinking else "response")
    return out.segments


def to_text(segments: Iterable[Segment]) -> str:
    """The rendering as one text, to look at; markers in it cannot be told from text that looks like them."""
    return "".join(segment.text for segment in segments)


def render_ids(tokenizer: K3Tokenizer, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
    """Token ids of a conversation; `options` are those of `render`. No [BOS] is put before them."""
    return tokenizer.encode_segments(render(messages, **options))


def apply_chat_template(
    tokenizer: K3Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    thinking_effort: str | None = "max",
    **options: Any,
) -> list[int]:
    """`render_ids` with the default of the released tokenizer: `thinking_effort="max"`."""
    return render_ids(tokenizer, messages, thinking_effort=thinking_effort, **options)


def order_tool_results(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with each run of tool results in the order of the calls they answer.

    The format numbers results by position, so their order says which call each answers. A run is sorted when every
    `tool_call_id` in it belongs to a call of the assistant message before it, and is left as it is otherwise.
    """
    ordered: list[Mapping[str, Any]] = []
    run: list[tuple[int | None, Mapping[str, Any]]] = []
    places: dict[str, int] = {}
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ValueError(f"message {number} must be a mapping with a role, got {type(message).__name__}.")
        if message.get("role") == "tool":
            run.append((places.get(str(message.get("tool_call_id"))), message))
            continue
        ordered += _sorted_run(run)
        run = []
        ordered.append(message)
        if message.get("role") == "assistant":
            places = {}
            for place, (call_id, _, _) in enumerate(_tool_calls(message, f"message {number} (assistant)")):
                if call_id is not None:
                    places.setdefault(call_id, place)
    return ordered + _sorted_run(run)


def _sorted_run(run: list[tuple[int | None, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    if all(place is not None for place, _ in run):
        run = sorted(run, key=lambda item: item[0] or 0)  # stable: two results of one call keep their order
    return [message for _, message in run]


class _Writer:
    """Collects segments. Every piece of a tag is a segment of its own, which decides how it is cut into tokens."""

    def __init__(self, image_prompts: Sequence[str] | None) -> None:
        self.segments: list[Segment] = []
        self.images = 0
        self._image_prompts = image_prompts

    def marker(self, name: str) -> None:
        self.segments.append(Segment(f"<|{name}|>", True))

    def text(self, text: str) -> None:
        if text:
            self.segments.append(Segment(text, False))

    def open(self, tag: str, **attributes: str) -> None:
        self.marker("open")
        self.text(tag)
        for key, value in attributes.items():
            self.text(f" {key}")
            self.text('="')
            self.text(value.replace("&", "&amp;").replace('"', "&quot;"))
            self.text('"')
        self.marker("sep")

    def close(self, tag: str) -> None:
        self.marker("close")
        self.text(tag)
        self.marker("sep")

    def end_message(self) -> None:
        self.close("message")
        self.marker("end_of_msg")

    def system(self, kind: str, text: str) -> None:
        self.open("message", role="system", type=kind)
        self.text(text)
        self.end_message()

    def image(self) -> None:
        if self._image_prompts is None:
            self.segments.append(Segment(IMAGE_PLACEHOLDER, True))
        elif self.images < len(self._image_prompts):
            self.segments.append(Segment(self._image_prompts[self.images], True))
        self.images += 1

    def content(self, content: Any, where: str) -> None:
        if isinstance(content, str):
            self.text(content)
            return
        if not isinstance(content, Sequence):
            raise ValueError(f"{where}: content must be a text or a list of items, got {type(content).__name__}.")
        for item in content:
            kind = item.get("type") if isinstance(item, Mapping) else type(item).__name__
            if isinstance(item, Mapping) and kind == "text" and isinstance(item.get("text"), str):
                self.text(item["text"])
            elif isinstance(item, Mapping) and kind in ("image", "image_url"):
                self.image()
            else:
                raise ValueError(
                    f"{where}: a content item is of type {kind!r}; it must be text (with a `text`), image or image_url."
                )


def _render_conversation(out: _Writer, messages: Sequence[Mapping[str, Any]], thinking: bool) -> None:
    calls: list[_Call] = []  # of the last assistant message
    results = 0
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        where = f"message {number} ({role})"
        if role == "tool":
            name = _result_name(message, calls, results, where)
            results += 1
            out.open("message", role="tool", tool=name, index=str(results))
            out.content("" if content is None else content, where)
        elif role == "system" and message.get("tools"):
            if content:
                raise ValueError(f"{where} has both tools and content; put them in two system messages.")
            out.system("tool-declare", _MORE_TOOLS.format(_tool_list(message["tools"], f"{where}: tools")))
            continue
        elif role in ("system", "user", "assistant"):
            speaker = message.get("name") or ""
            if not isinstance(speaker, str):
                raise ValueError(f"{where}: name must be a text, got {type(speaker).__name__}.")
            out.open("message", role=role, **({"name": speaker} if speaker else {}))
            if role == "assistant":
                calls, results = _tool_calls(message, where), 0
                _render_assistant(out, message, calls, thinking, where)
            else:
                out.content(content, where)
        else:
            raise ValueError(f"message {number} has role {role!r}; it must be system, user, assistant or tool.")
        out.end_message()


def _render_assistant(out: _Writer, message: Mapping[str, Any], calls: list[_Call], thinking: bool, where: str) -> None:
    if thinking:
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        if not isinstance(reasoning, str):
            raise ValueError(f"{where}: reasoning_content must be a text, got {type(reasoning).__name__}.")
        out.open("think")
        out.text(reasoning if reasoning.strip() else "")
        out.close("think")
    out.open("response")
    content = message.get("content")
    out.content("" if content is None else content, where)
    out.close("response")
    if not calls:
        return
    out.open("tools")
    for index, (_, name, arguments) in enumerate(calls, start=1):
        out.open("call", tool=name, index=str(index))
        if isinstance(arguments, str):
            out.open("json", type="object")
            out.text(arguments)
            out.close("json")
        else:
            for key, value in arguments.items():
                out.open("argument", key=key, type=_type_name(value))
                out.text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
                out.close("argument")
        out.close("call")
    out.close("tools")


def _tool_calls(message: Mapping[str, Any], where: str) -> list[_Call]:
    """(id, name, arguments) of each call: arguments by key, or the text as it is where it is not a JSON object."""
    listed = message.get("tool_calls") or []
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ValueError(f"{where}: tool_calls must be a list, got {type(listed).__name__}.")
    calls: list[_Call] = []
    for place, call in enumerate(listed, start=1):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            raise ValueError(f"{where}: tool call {place} names no function; give it a `function` with a `name`.")
        arguments = function.get("arguments")
        if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
            arguments = {}
        elif isinstance(arguments, str):
            arguments = _json_object(arguments)
        elif not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            raise ValueError(
                f"{where}: arguments of tool call {place} ({name}) must be a JSON object, as text or mapping."
            )
        elif not _is_json(arguments):
            raise ValueError(f"{where}: arguments of tool call {place} ({name}) hold a value that is not JSON.")
        call_id = call.get("id")
        calls.append((None if call_id is None else str(call_id), name, arguments))
    return calls


def _json_object(text: str) -> dict[str, Any] | str:
    """The object that a JSON text holds, or the text itself where it holds none that can be written again."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and _is_json(value) else text


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):  # before the numbers: a bool is an int in Python
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def _result_name(message: Mapping[str, Any], calls: list[_Call], place: int, where: str) -> str:
    """The tool whose result a tool message is."""
    call_id = message.get("tool_call_id")
    by_id = next((name for other, name, _ in calls if other is not None and other == str(call_id)), None)
    by_place = calls[place][1] if place < len(calls) else None
    name = by_id or message.get("tool") or message.get("name") or by_place
    if not isinstance(name, str):
        raise ValueError(
            f"{where} answers no call of the assistant message before it (tool_call_id {call_id!r}); give it the "
            "tool_call_id of a call, or a `name`."
        )
    return name


def _render_response_format(out: _Writer, response_format: Mapping[str, Any]) -> None:
    kind = response_format.get("type") if isinstance(response_format, Mapping) else response_format
    if kind == "json_object":
        out.system("response-format", _RESPONSE_FORMAT.format(kind))
    elif kind == "json_schema":
        json_schema = response_format.get("json_schema")
        schema = json_schema.get("schema") if isinstance(json_schema, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ValueError('response_format of type "json_schema" needs the schema at ["json_schema"]["schema"].')
        text = _RESPONSE_FORMAT + _SCHEMA
        out.system("response-format", text.format(kind, _compact_json(schema, "response_format")))
    elif kind != "text":
        raise ValueError(f"response_format is of type {kind!r}; it must be text, json_object or json_schema.")


def _tool_list(tools: Any, where: str) -> str:
    if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
        raise ValueError(f"{where} must be a list of tool declarations, as in the OpenAI API.")
    return _compact_json(tools, where)


def _compact_json(value: Any, where: str) -> str:
    """JSON without spaces, the keys of every object sorted."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{where} cannot be written as JSON ({error}).") from error
