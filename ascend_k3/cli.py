"""The program `ascend-k3`: its commands, their options, and how errors are told.

Exit codes: 0 done; 1 the thing checked is not fine; 2 the call is wrong, or a path does not exist or cannot be read.
Each command imports what it needs when it runs, so that `--help` is immediate.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

DONE, NOT_FINE, WRONG_CALL = 0, 1, 2
MOST_LAYERS = 10_000  # that --layers may speak of
DTYPES = ("float32", "bfloat16", "float64", "stored")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows another
    try:
        return options.run(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away: nothing is left to say
        return DONE
    except (ValueError, OSError, RuntimeError) as error:  # the package's own errors are kinds of these
        if options.debug:
            raise
        sentence = _sentence(error).removeprefix(f"{options.command}: ")
        print(f"ascend-k3 {options.command}: {sentence}", file=sys.stderr)
        return WRONG_CALL


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    from ascend_k3.version import __version__

    parser = argparse.ArgumentParser(prog="ascend-k3", description="Kimi K3 on Ascend NPUs, exact on a plain CPU.")
    parser.add_argument("--version", action="version", version=f"ascend-k3 {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], help_text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.set_defaults(run=run)
        return command

    demo = add("demo", _demo, "make a small K3, train it, save it with MXFP4 experts, check it, load it, generate")
    demo.add_argument("--output", type=Path, help="keep the checkpoint in this new folder")
    demo.add_argument("--seed", type=int, default=0)

    generate = add("generate", _generate, "continue a prompt")
    generate.add_argument("checkpoint", type=Path)
    prompt = generate.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="text to continue")
    prompt.add_argument("--chat", metavar="TEXT", help="a user's message, answered in the chat format")
    prompt.add_argument("--tokens", metavar="1,2,3", help="token ids to continue")
    prompt.add_argument("--messages", type=Path, metavar="FILE.json", help="a chat of several turns, images included")
    add_medium = partial(generate.add_argument, dest="media", type=Path, action="append", default=[])
    add_medium("--image", metavar="FILE", help="before the prompt; may be repeated")
    add_medium("--frames", metavar="FILE", nargs="+", help="up to 4 of one size, as one image; in order with --image")
    generate.add_argument("--allow-remote", action="store_true", help="fetch images from http(s) addresses")
    generate.add_argument("--max-new-tokens", type=int, default=128)
    generate.add_argument("--temperature", type=float, default=0.0, help="0 (the likeliest token) by default")
    generate.add_argument("--top-p", type=float, default=1.0)
    generate.add_argument("--seed", type=int)
    generate.add_argument("--dtype", choices=DTYPES, default="float32")
    generate.add_argument("--json", action="store_true")

    logits = add("logits", _logits, "write the logits of every position")
    logits.add_argument("checkpoint", type=Path)
    logits.add_argument("--tokens", required=True, metavar="FILE.json|1,2,3", help="token ids, or a JSON file of them")
    logits.add_argument("--output", required=True, type=Path, metavar="FILE.safetensors", help='"logits" [T, vocab]')
    logits.add_argument("--dtype", choices=DTYPES, default="float32")

    check = add("check", _check, "look a checkpoint over without loading it: every file, tensor and key")
    check.add_argument("checkpoint", type=Path)
    check.add_argument("--manifest", type=Path, help="sha256sum lines; every file is read and compared")
    check.add_argument("--json", action="store_true")

    convert = add("convert", _convert, "write a checkpoint anew: pack or expand experts, cut into other shards")
    convert.add_argument("source", type=Path)
    convert.add_argument("target", type=Path)
    convert.add_argument("--experts", choices=("bf16", "mxfp4"), help="as they are by default")
    convert.add_argument("--shard-size", default="5GB", help="of one file: bytes, or with MB or GB (default 5GB)")
    convert.add_argument("--layers", help="keep only these, from 0 and renumbered, such as 0-3,7")

    kernels = add("kernels", _kernels, "run the Ascend C kernels on the emulator: results, hazards, costs")
    kernels.add_argument("action", choices=("test", "report"), help="test: every case; report: counters and estimates")
    kernels.add_argument("operator", nargs="*", help="such as rms_norm; all that have kernels by default")
    kernels.add_argument(
        "--soc", action="append", metavar="NAME", help="a2, a3, 950pr or 950dt; may be repeated (default a3 and 950pr)"
    )
    kernels.add_argument("--json", action="store_true")
    kernels.add_argument("--trace", type=Path, metavar="FILE.json", help="report: a Chrome trace of the last launch")
    kernels.add_argument("--plot", type=Path, metavar="FILE.png", help="report: a picture of it (needs matplotlib)")
    return parser


def _kernels(options: argparse.Namespace) -> int:
    from ascend_k3.ops import kernel_cases, kernel_report
    from ascend_k3.ops.soc import soc

    operators = options.operator or kernel_cases.OPERATORS
    for operator in operators:
        kernel_cases.cases(operator)
    socs = [soc(name).name for name in options.soc or ("a3", "950pr")]
    if options.action == "test":
        if options.trace or options.plot:
            raise ValueError("--trace and --plot go with `kernels report`; `kernels test` keeps no timeline.")
        return DONE if kernel_report.test(operators, socs, options.json) else NOT_FINE
    fine = kernel_report.report(operators, socs, options.json, trace=options.trace, plot=options.plot)
    return DONE if fine else NOT_FINE


def _demo(options: argparse.Namespace) -> int:
    from ascend_k3.demo import run_demo

    return DONE if run_demo(output=options.output, seed=options.seed) else NOT_FINE


def _generate(options: argparse.Namespace) -> int:
    from ascend_k3.generation import generate
    from ascend_k3.tokenizer import StreamDecoder, stop_token_ids

    _require_folder(options.checkpoint)
    tokenizer, ids, images = _prompt(options)
    stops = stop_token_ids(options.checkpoint)
    model = _load(options)
    stream = StreamDecoder(tokenizer) if tokenizer is not None else None

    def show(_: int, token: int) -> None:
        if stream is not None and not options.json and token not in stops:
            print(stream.feed([token]), end="", flush=True)

    answer = generate(
        model,
        [ids],
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
        stop_ids=stops,
        callback=show,
        **images,
    )[0].tolist()
    if options.json:
        text = None if tokenizer is None else tokenizer.decode(answer)
        print(json.dumps({"prompt_tokens": ids, "tokens": answer, "text": text}, ensure_ascii=False))
    elif stream is not None:
        print(stream.flush())
    else:
        print(",".join(map(str, answer)))
    return DONE


def _prompt(options: argparse.Namespace) -> tuple[Any, list[int], dict[str, Any]]:
    """The tokenizer (None for --tokens), the prompt's token ids, and what `generate` takes for its images."""
    from ascend_k3.chat import apply_chat_template
    from ascend_k3.files import read_json
    from ascend_k3.tokenizer import K3Tokenizer

    if options.media and (options.tokens is not None or options.messages is not None):
        raise ValueError(
            "--image and --frames go with --prompt or --chat; token ids have no place for them, and messages their own."
        )
    if options.tokens is not None:
        return None, _token_list(options.tokens), {}
    tokenizer = K3Tokenizer.from_pretrained(options.checkpoint)
    if options.prompt == "":
        raise ValueError("--prompt is empty; give at least one character.")
    if options.messages is not None:
        messages = read_json(options.messages)
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValueError(f"{options.messages} must hold a JSON list of chat messages.")
    else:
        content: list[dict[str, Any]] = [{"type": "image", "image": medium} for medium in options.media]
        content += [{"type": "text", "text": options.chat or options.prompt}]
        messages = [{"role": "user", "content": content if options.media else options.chat}]
    if options.prompt is not None and not options.media:
        return tokenizer, tokenizer.encode(options.prompt), {}

    from ascend_k3.images import collect_images, media_prompts, preprocess_batch

    pictures = collect_images(messages, allow_remote=options.allow_remote)
    prompts = media_prompts(pictures)
    images = dict(zip(("pixel_values", "grid_thws"), preprocess_batch(pictures), strict=True)) if pictures else {}
    if options.prompt is not None:
        segments = [*((text, True) for text in prompts), (options.prompt, False)]
        return tokenizer, tokenizer.encode_segments(segments), images
    return tokenizer, apply_chat_template(tokenizer, messages, image_prompts=prompts or None), images


def _logits(options: argparse.Namespace) -> int:
    import torch

    from ascend_k3.files import replaced, save_tensors

    _require_folder(options.checkpoint)
    ids = _token_list(options.tokens)
    with replaced(options.output) as file:
        model = _load(options)
        with torch.inference_mode():
            logits = model(_as_tensor(ids, model.config.text.vocab_size)).logits[0].float()
        save_tensors({"logits": logits.contiguous()}, file)
    print(f"{options.output}: logits {list(logits.shape)} float32")
    return DONE


def _check(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from ascend_k3.doctor import check_checkpoint
    from ascend_k3.problems import format_problem, report_as_json

    with tqdm(desc="checking", disable=True if options.json else None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        report = check_checkpoint(options.checkpoint, manifest=options.manifest, progress=progress)
    if options.json:
        print(json.dumps(report_as_json(report), indent=2))
    else:
        for problem in report.problems:
            print(format_problem(problem))
        state = "fine" if report.ok else "NOT fine"
        print(
            f"{options.checkpoint}: {state}; {report.tensors:,} tensors, {report.bytes:,} bytes, {report.shards} shards"
        )
    return DONE if report.ok else NOT_FINE


def _convert(options: argparse.Namespace) -> int:
    from ascend_k3.checkpoint import convert_checkpoint

    convert_checkpoint(
        options.source,
        options.target,
        experts=options.experts,
        layers=None if options.layers is None else _layer_list(options.layers),
        shard_size=_size(options.shard_size),
    )
    print(f"{options.target}: written")
    return DONE


def _as_tensor(ids: list[int], vocabulary: int) -> Any:
    """Token ids as one row, once they are known to be in the vocabulary."""
    import torch

    wrong = [token for token in ids if not 0 <= token < vocabulary]
    if wrong:
        raise ValueError(f"token id {wrong[0]} is outside the vocabulary: ids go from 0 to {vocabulary - 1}.")
    return torch.tensor([ids])


def _load(options: argparse.Namespace) -> Any:
    import torch

    from ascend_k3.checkpoint import load_model

    dtype = None if options.dtype == "stored" else getattr(torch, options.dtype)
    return load_model(options.checkpoint, dtype=dtype)


def _require_folder(path: Path) -> None:
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder; give the folder of a checkpoint.")


def _token_list(text: str) -> list[int]:
    """Token ids from "1,2,3", or from a JSON file with a list of them."""
    from ascend_k3.files import read_json

    source = "--tokens"
    if text.endswith(".json"):
        source = text
        if not Path(text).exists():
            raise FileNotFoundError(f"{text} does not exist; --tokens takes a JSON file with a list of token ids.")
        ids = read_json(text)
        shown = json.dumps(ids)
    else:
        parts = [part.strip() for part in text.split(",")] if text.strip(", ") else []
        ids = [int(part) if part.removeprefix("-").isdecimal() else part for part in parts]
        shown = repr(text)
    if not isinstance(ids, list) or not all(type(item) is int for item in ids):
        shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
        raise ValueError(f"{source} must be a list of token ids such as 1,2,3; got {shown}.")
    if not ids:
        raise ValueError(f"{source} holds no token; give at least one.")
    return ids


def _layer_list(text: str) -> list[int]:
    """Layer numbers from "0-3,7"."""
    layers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ValueError(f"--layers must be numbers and ranges such as 0-3,7; got {text!r}.")
        begin, end = int(first), int(last or first)
        if not begin <= end < MOST_LAYERS:
            raise ValueError(f"--layers has the range {part.strip()}; it must rise, and stay below {MOST_LAYERS}.")
        layers += range(begin, end + 1)
    return layers


def _size(text: str) -> int:
    """Bytes from "5GB", "300MB" or a plain number."""
    for ending, factor in (("GB", 10**9), ("MB", 10**6), ("", 1)):
        number = text.upper().removesuffix(ending)
        if text.upper().endswith(ending) and number.replace(".", "", 1).isdecimal():
            size = int(float(number) * factor)
            if size > 0:
                return size
    raise ValueError(f"--shard-size must be a positive number of bytes such as 300MB or 5GB; got {text!r}.")
