"""What can be wrong with a checkpoint: every kind of problem with its severity and words, and the report of a check.

An error: the checkpoint cannot be loaded, or would compute something else. A warning: loading works, and somebody
should look. A note: a fact worth knowing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]

# Code -> severity, and the message: what is wrong, and what to do. Braces are filled in by `Findings.add`.
KINDS: dict[str, tuple[Severity, str]] = {
    # files
    "config-missing": ("error", "the file is absent and the model cannot be built without it: download it again."),
    "config-invalid": ("error", "{reason}"),
    "index-missing": ("error", "the index is absent, and so is {single}, which needs none: download the index again."),
    "index-invalid": ("error", "{reason}"),
    "json-invalid": ("error", "{reason}"),
    "shard-missing": ("error", "the index places {count:,} tensors in this shard and it is absent: download it again."),
    "shard-header": ("error", "{reason}"),
    "shard-truncated": ("error", "{reason}"),
    "shard-too-long": ("error", "{reason}"),
    "shard-count": (
        "warning",
        "the names count {total} shards and {count} of the numbers do not occur; "
        "download the absent shards, and the index with them.",
    ),
    "shard-not-in-index": ("warning", "the index places no tensor in this shard; remove the file if it is stale."),
    "total-size": (
        "warning",
        "metadata.total_size is {told!r} and the tensors have {size} bytes; write the index again.",
    ),
    "tokenizer-missing": ("note", "the file is absent; token numbers work without it, download it for text."),
    # index against shards
    "tensor-twice": ("error", "the tensor is also in {other}; remove the shard that is stale."),
    "tensor-wrong-shard": (
        "error",
        "the index places the tensor here and it is in {other}; download the index and both shards again.",
    ),
    "tensor-not-in-shard": (
        "error",
        "the index places the tensor in this shard, which does not hold it; download shard and index again.",
    ),
    "tensor-not-in-index": (
        "error",
        "the shard holds the tensor and the index does not name it; download shard and index again.",
    ),
    # names, dtypes and shapes against the config
    "names-mixed": (
        "error",
        "{bare:,} names begin with 'model.' or 'lm_head.' and {rooted:,} with '{root}'; files of two checkpoints are "
        "mixed: download all from one.",
    ),
    "names-root": ("note", "names lack the root '{root}'; both forms are loaded, so there is nothing to do."),
    "tensor-missing": ("error", "the tensor is in no shard; download the shard that holds it, and the index, again."),
    "tensor-unknown": (
        "error",
        "a model of this config has no such tensor; use the config.json of these weights, or remove the tensor.",
    ),
    "tensor-shape": (
        "error",
        "shape is {shape} and by the config it must be {wanted}; use config.json and shards of one checkpoint.",
    ),
    "tensor-dtype": ("error", "dtype is {dtype} and must be {wanted}: {reason}."),
    "vision-missing": (
        "error",
        "vision_config is there and the checkpoint has no vision tensor; download their shard, or remove vision_config "
        "for a model of text only.",
    ),
    "vision-without-config": (
        "error",
        "the shards hold {count} vision tensors and vision_config is absent; use the config.json of these weights.",
    ),
    "a-log-short": ("error", "A_log has {entries} entries for {heads} heads; download the shard again."),
    "a-log-length": (
        "warning",
        "A_log has {entries} entries and the release would store {wanted}; the first {heads} are used: save the model "
        "again for other loaders.",
    ),
    "a-log-tail": (
        "warning",
        "of the {entries} padding entries {count} are not zero; the first {heads} are used: compare the shard's hash "
        "with the release.",
    ),
    # routed experts
    "scale-missing": (
        "error",
        "weight_packed has no weight_scale beside it, so its values are unknown; download shard and index again.",
    ),
    "experts-mixed": (
        "error",
        "{packed:,} expert weights are packed and {plain:,} are not; a checkpoint has one format: convert it again.",
    ),
    "experts-packed": (
        "warning",
        "the experts are packed as MXFP4 and quantization_config is absent; they are read as packed: add it.",
    ),
    "experts-not-packed": (
        "warning",
        "quantization_config says MXFP4 and the experts are not packed; they are read as they are: remove it.",
    ),
    "experts-ignored": (
        "warning",
        "targets less ignore of quantization_config leave out the experts, which are packed; they are read as packed: "
        "take the lists from the release.",
    ),
    "experts-width": ("error", "{reason}"),
    "quantized-set": (
        "note",
        "targets less ignore of quantization_config would quantize {count} linear modules that are stored unpacked, "
        "such as {module}; the tensors decide, so there is nothing to do.",
    ),
    "quantized-patterns": ("warning", "{reason}; take it from the release's config.json."),
    # tokens
    "token-id": (
        "error",
        "{kind} token {value!r} must be a number in [0, vocab_size = {vocabulary}): download the file again.",
    ),
    "stop-tokens": ("note", "stop tokens differ ({listed}); generation stops at each of {union}."),
    "pad-token": ("note", "the pad token is {found} here and {used} in config.json, which is used."),
    # hashes
    "hash-differs": ("error", "SHA-256 is {actual} and the manifest has {wanted}: download the file again."),
    "hash-unreadable": ("error", "the file cannot be read ({reason}): download it again."),
    "hash-file-missing": ("error", "the manifest lists the file and it is absent: download it."),
    "hash-unlisted": (
        "warning",
        "the manifest does not list this shard, so its bytes were not checked; use a manifest of all files.",
    ),
}
PER_CODE = 20  # problems of one code that are told one by one
_ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One finding. `where` is "file" or "file: tensor"; `message` says what is wrong and what to do."""

    severity: Severity
    code: str
    where: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """What a check found: errors first, then warnings, then notes."""

    problems: list[Problem]
    shards: int  # shard files whose headers could be read
    tensors: int  # tensors in them
    bytes: int  # bytes of these tensors

    @property
    def ok(self) -> bool:
        """No errors; warnings and notes do not keep a checkpoint from being loaded."""
        return all(problem.severity != "error" for problem in self.problems)


class Findings:
    """Collects problems, at most `PER_CODE` of each code; the rest is counted."""

    def __init__(self) -> None:
        self._kept: list[Problem] = []
        self._counts: Counter[str] = Counter()

    def add(self, code: str, where: str, **values: Any) -> None:
        """Add a problem of a kind in `KINDS`; `values` fill its message."""
        severity, message = KINDS[code]
        self._counts[code] += 1
        if self._counts[code] <= PER_CODE:
            self._kept.append(Problem(severity=severity, code=code, where=where, message=message.format(**values)))

    def ordered(self) -> list[Problem]:
        """The problems by severity, each code's surplus as one more problem after its last."""
        problems: list[Problem] = []
        told: Counter[str] = Counter()
        for problem in self._kept:
            problems.append(problem)
            told[problem.code] += 1
            surplus = self._counts[problem.code] - PER_CODE
            if told[problem.code] == PER_CODE and surplus > 0:
                message = f"... and {surplus:,} more of this kind; what the first of them need, these need too."
                problems.append(replace(problem, where="checkpoint", message=message))
        return sorted(problems, key=lambda problem: _ORDER.index(problem.severity))


def format_problem(problem: Problem) -> str:
    """A problem as one line: severity, code, file, tensor, what is wrong, what to do."""
    line = f"{problem.severity}: {problem.code}: {problem.where}: {problem.message}"
    return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def report_as_json(report: CheckReport) -> dict[str, Any]:
    """A report as JSON values."""
    return {
        "ok": report.ok,
        "shards": report.shards,
        "tensors": report.tensors,
        "bytes": report.bytes,
        "problems": [asdict(problem) for problem in report.problems],
    }
