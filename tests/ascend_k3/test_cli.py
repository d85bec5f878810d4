"""The program: every command with real files, every wrong call with one sentence and its exit code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ascend_k3.bpe import train_bpe, write_tokenizer
from ascend_k3.cli import main
from tests.ascend_k3.checkpoints import expected
from tests.paths import FIXTURES
from tests.tolerances import LOGITS_ATOL

CHECKPOINT = str(FIXTURES / "ckpt_mxfp4")


def run(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def with_text(tmp_path: Path) -> Path:
    """ckpt_kernel, widened so that a byte tokenizer fits."""
    from ascend_k3 import K3Config, K3ForConditionalGeneration, save_model

    data = json.loads((FIXTURES / "ckpt_kernel/config.json").read_text())
    ids = {"bos_token_id": 256, "eos_token_id": 258, "pad_token_id": 319}
    data |= {**ids, "media_placeholder_token_id": 277}
    data["text_config"] |= {**ids, "vocab_size": 320}
    torch.manual_seed(0)
    save_model(K3ForConditionalGeneration(K3Config.from_dict(data)), tmp_path / "text")
    write_tokenizer(tmp_path / "text", train_bpe(["a few words"], 256), 320)
    return tmp_path / "text"


def test_generate_from_tokens_gives_the_fixture(capsys: pytest.CaptureFixture) -> None:
    x = expected("ckpt_mxfp4")
    prompt = ",".join(map(str, x["greedy_prompt"].tolist()))
    code, out, _ = run(capsys, "generate", CHECKPOINT, "--tokens", prompt, "--max-new-tokens", 16)
    assert code == 0 and out == ",".join(map(str, x["greedy_ids"].tolist())) + "\n"
    code, out, _ = run(capsys, "generate", CHECKPOINT, "--tokens", prompt, "--max-new-tokens", 16, "--json")
    assert code == 0
    assert json.loads(out) == {
        "prompt_tokens": x["greedy_prompt"].tolist(),
        "tokens": x["greedy_ids"].tolist(),
        "text": None,
    }


def test_generate_from_text_and_chat(capsys: pytest.CaptureFixture, with_text: Path) -> None:
    code, plain, err = run(capsys, "generate", with_text, "--prompt", "words", "--max-new-tokens", 5, "--json")
    assert code == 0, err
    answer = json.loads(plain)
    assert answer["prompt_tokens"] == list(b"words") and len(answer["tokens"]) <= 5
    code, streamed, _ = run(capsys, "generate", with_text, "--prompt", "words", "--max-new-tokens", 5)
    assert code == 0 and streamed == answer["text"] + "\n"
    code, chat, _ = run(capsys, "generate", with_text, "--chat", "words", "--max-new-tokens", 2, "--json")
    assert code == 0 and json.loads(chat)["prompt_tokens"][0] == 259  # <|open|>


@pytest.mark.parametrize("as_file", [False, True], ids=["list", "file"])
def test_logits_are_written(capsys: pytest.CaptureFixture, tmp_path: Path, as_file: bool) -> None:
    x = expected("ckpt_mxfp4")
    row = x["batch_input_ids"][2]
    tokens = ",".join(map(str, row.tolist()))
    if as_file:
        tokens = str(tmp_path / "tokens.json")
        Path(tokens).write_text(json.dumps(row.tolist()))
    output = tmp_path / "logits.safetensors"
    code, out, _ = run(capsys, "logits", CHECKPOINT, "--tokens", tokens, "--output", output)
    assert code == 0 and out == f"{output}: logits [70, 160] float32\n"
    logits = load_file(output)["logits"]
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, x["batch_logits"][2], atol=LOGITS_ATOL, rtol=0)


def test_check_says_fine_or_not(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "check", CHECKPOINT)
    assert code == 0 and "fine; 636 tensors, 1,508,896 bytes, 1 shards" in out
    broken = Path(shutil.copytree(CHECKPOINT, tmp_path / "broken"))
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    code, out, _ = run(capsys, "check", broken)
    assert code == 1 and "error: shard-truncated: model.safetensors: " in out and "NOT fine" in out
    code, out, _ = run(capsys, "check", broken, "--json")
    report = json.loads(out)
    assert code == 1 and not report["ok"] and report["problems"][0]["code"] == "shard-truncated"


def test_check_with_a_manifest_reads_the_bytes(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CHECKPOINT, tmp_path / "copy"))
    hashes = subprocess.run(
        ["sha256sum", *sorted(f.name for f in folder.iterdir())], cwd=folder, capture_output=True, check=True
    )
    manifest = tmp_path / "SHA256SUMS"
    manifest.write_bytes(hashes.stdout)
    assert run(capsys, "check", folder, "--manifest", manifest)[0] == 0
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert run(capsys, "check", folder)[0] == 0, "the right size with wrong bytes passes without a manifest"
    code, out, _ = run(capsys, "check", folder, "--manifest", manifest)
    assert code == 1 and "model.safetensors" in out


def test_convert(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    target = tmp_path / "out"
    code, out, _ = run(
        capsys, "convert", CHECKPOINT, target, "--experts", "bf16", "--shard-size", "0.4MB", "--layers", "0-2,3"
    )
    assert code == 0 and out == f"{target}: written\n"
    assert len(list(target.glob("*.safetensors"))) > 1
    assert run(capsys, "check", target)[0] == 0


WRONG = {
    "no-folder": (["generate", "nowhere", "--tokens", "1"], "nowhere is not a folder; give the folder of a checkpoint"),
    "check-nowhere": (["check", "nowhere"], "nowhere does not exist; give the folder of a checkpoint"),
    "check-file": (["check", __file__], "is a file; give the folder of a checkpoint"),
    "manifest": (["check", CHECKPOINT, "--manifest", "nowhere"], "nowhere: No such file or directory|nowhere"),
    "id-range": (["generate", CHECKPOINT, "--tokens", "1,160"], "token id 160 is outside the vocabulary"),
    "id-text": (["generate", CHECKPOINT, "--tokens", "1,x"], "--tokens must be a list of token ids such as 1,2,3"),
    "id-none": (["generate", CHECKPOINT, "--tokens", ","], "--tokens holds no token; give at least one"),
    "no-tokenizer": (["generate", CHECKPOINT, "--prompt", "x"], "tiktoken.model is missing"),
    "temperature": (["generate", CHECKPOINT, "--tokens", "1", "--temperature", "-1"], "temperature must be 0 or"),
    "top-p": (["generate", CHECKPOINT, "--tokens", "1", "--top-p", "2"], r"top_p must lie in \(0, 1\], got 2.0"),
    "logits-folder": (
        ["logits", CHECKPOINT, "--tokens", "1", "--output", "no/where.safetensors"],
        "no does not exist; make the folder that where.safetensors goes into",
    ),
    "logits-file": (
        ["logits", CHECKPOINT, "--tokens", "no.json", "--output", "x"],
        "no.json does not exist; --tokens takes a JSON file",
    ),
    "shard-size": (["convert", CHECKPOINT, "out", "--shard-size", "big"], "--shard-size must be a positive number"),
    "layers": (["convert", CHECKPOINT, "out", "--layers", "a-b"], "--layers must be numbers and ranges such as 0-3,7"),
    "id-huge": (["generate", CHECKPOINT, "--tokens", "9" * 30], "token id 9{30} is outside the vocabulary"),
    "id-huge-logits": (["logits", CHECKPOINT, "--tokens", "9" * 30, "--output", "x"], "token id 9{30} is outside"),
    "id-minus": (["generate", CHECKPOINT, "--tokens=--5"], "--tokens must be a list of token ids"),
    "id-gap": (["generate", CHECKPOINT, "--tokens", "1,,2"], "--tokens must be a list of token ids"),
    "seed": (["generate", CHECKPOINT, "--tokens", "1", "--seed", str(2**64)], "seed must be an integer of 64 bits"),
    "output-folder": (["logits", CHECKPOINT, "--tokens", "1", "--output", "/"], "/ is not a regular file"),
    "output-device": (
        ["logits", CHECKPOINT, "--tokens", "1", "--output", "/dev/null"],
        "/dev/null is not a regular file",
    ),
    "output-proc": (["logits", CHECKPOINT, "--tokens", "1", "--output", "/proc/x"], "/proc/x"),
    "layers-fall": (["convert", CHECKPOINT, "out", "--layers", "3-0"], "--layers has the range 3-0; it must rise"),
    "layers-many": (["convert", CHECKPOINT, "out", "--layers", "0-9999999999"], "and stay below 10000"),
    "exists": (["convert", CHECKPOINT, CHECKPOINT], "exists and is not an empty folder; choose another"),
    "convert-nowhere": (["convert", "nowhere", "out"], "nowhere is not a folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_gives_one_sentence_and_exit_code_2(
    case: str, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, message = WRONG[case]
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == ""
    assert err.startswith(f"ascend-k3 {arguments[0]}: ") and err.count("\n") == 1 and "Traceback" not in err
    assert re.search(message, err), err
    assert not (tmp_path / "out").exists()


def test_an_empty_prompt_is_refused(capsys: pytest.CaptureFixture, with_text: Path) -> None:
    code, _, err = run(capsys, "generate", with_text, "--prompt", "")
    assert code == 2 and "--prompt is empty; give at least one character" in err


def test_unreadable_tokens_are_refused(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    for content, message in (("[1,", "is not readable as JSON"), ('{"a": 1}', "must be a list of token ids")):
        file.write_text(content)
        code, _, err = run(capsys, "logits", CHECKPOINT, "--tokens", file, "--output", tmp_path / "x")
        assert code == 2 and message in err


def test_unknown_options_exit_with_2(capsys: pytest.CaptureFixture) -> None:
    for arguments in (
        ["frobnicate"],
        ["generate", CHECKPOINT],
        [],
        ["generate", CHECKPOINT, "--prompt", "a", "--tokens", "1"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert "usage: ascend-k3" in capsys.readouterr().err


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(FileNotFoundError):
        main(["generate", "nowhere", "--tokens", "1", "--debug"])


def test_a_broken_checkpoint_is_one_sentence(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(CHECKPOINT, tmp_path / "broken"))
    (broken / "model.safetensors").unlink()
    for command in (["generate", broken, "--tokens", "1"], ["convert", broken, tmp_path / "out"]):
        code, _, err = run(capsys, *command)
        assert code == 2 and err.count("\n") == 1 and "cannot be loaded" in err


def test_no_progress_bar_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ascend_k3", "generate", CHECKPOINT, "--tokens", "1,2,3", "--max-new-tokens", "2"],
        capture_output=True,
        text=True,
        cwd="/",
        check=True,
    )
    assert done.stderr == "" and len(done.stdout.split(",")) == 2
