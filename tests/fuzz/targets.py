"""Targets: what is done with an input of each kind, as the commands do it, and what must hold of the outcome.

What a target raises is a fault of the parser, but for the errors that it declares.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from math import prod
from typing import TYPE_CHECKING, Any

from fuzz.bench import Workbench
from fuzz.invariants import check_declaration, check_findings, check_markdown, check_printed, check_table
from fuzz.mutate import MAX_BYTES
from moeshapes import document, kernel_name
from moeshapes.adopt import adopt
from moeshapes.claim import Claim
from moeshapes.findings import Finding, printable
from moeshapes.gate.attestation import Attestations
from moeshapes.gate.policy import Policy, parse_policy
from moeshapes.gate.verdict import Bench, of_new_row, of_old_row
from moeshapes.generate import derived_tables
from moeshapes.importer import import_file
from moeshapes.keys import check_keys
from moeshapes.log_line import Lookup, parse_log_line, parse_printed_key
from moeshapes.report.evidence import Evidence
from moeshapes.repository import parse_declarations
from moeshapes.rules import lint_rows
from moeshapes.table import Table, parse_table, read_tuned_rows, read_untuned_rows
from moeshapes.waiver import read_waivers, waive
from small_repository import MODEL, SHAPE, TABLE, tuned_line
from table_text import text

if TYPE_CHECKING:
    from moeshapes.checkpoint.stored import StoredLayer

TODAY = date(2026, 11, 30)
"""Fixed: what an input finds must not hang on the day."""
_FEW = 20
"""Rows whose every report is made: it takes longer than to read them."""


def yaml_document(data: bytes, bench: Workbench) -> None:
    """As a model file, a shape file, a policy and waivers; no caller passes on what is larger than a file may be."""
    data = data[: document.MAX_BYTES]
    for model, shape in ((data, SHAPE.encode()), (MODEL.encode(), data)):
        declarations, findings = parse_declarations({"models/tiny.yaml": model, "shapes/tiny/tp2.yaml": shape})
        check_findings(findings)
        for path, content in derived_tables(declarations).items():
            check_table(path, content)
    check_findings(parse_policy(data, "policy.yaml")[1])
    bench.write("waivers.yaml", data)
    waivers, findings = read_waivers(bench.root, TODAY)
    check_findings([*findings, *waive([], [], waivers).unused])


def table(data: bytes, bench: Workbench) -> None:
    """As a tuned and as an untuned table: kept byte for byte, judged, adopted, imported and reported."""
    untuned = parse_table(data, "any_untuned_fmoe.csv")
    check_findings(untuned.findings)
    read_untuned_rows(untuned)
    tuned = parse_table(data, TABLE)
    assert tuned.render() == data == untuned.render()
    check_findings(tuned.findings)
    rows = read_tuned_rows(tuned)
    check_findings(lint_rows(rows, bench.declarations))
    _adopt(tuned, bench)
    _import(data, "any_tuned_fmoe.csv", bench)
    _import(data, "any_untuned_fmoe.csv", bench)
    bench.write(TABLE, data)
    check_findings(check_keys(bench.root).findings)
    bench.check_reports(rows[:_FEW])


def _adopt(tuned: Table, bench: Workbench) -> None:
    """Each row by itself, so that one that cannot be adopted does not keep the others out; some displace others."""
    bench.remove(TABLE)
    for row in read_tuned_rows(tuned)[:_FEW]:
        result = adopt(tuned, [row], "a note", bench.root, bench.declarations)
        check_findings(result.findings)
        check_printed(result.text)
        for path in result.written:
            check_table(path.relative_to(bench.root).as_posix(), path.read_bytes())


def kernel(data: bytes, bench: Workbench) -> None:
    """A kernel's name, by itself and in a row."""
    name = data.decode("utf-8", "replace")
    parsed = kernel_name.parse(name)
    if parsed:
        assert parsed.render() == name
        assert kernel_name.parse(parsed.corrected)
        assert all(hasattr(parsed, field.name) for field in kernel_name.POLICY_FIELDS)
    tuned = parse_table(text(tuned_line(8, kernelName1=name), tuned_line(8, kernelName2=name)), TABLE)
    check_findings(tuned.findings)
    rows = read_tuned_rows(tuned)
    check_findings(lint_rows(rows, bench.declarations))
    bench.check_reports(rows)


def record(data: bytes, bench: Workbench) -> None:
    """As a record: judged as evidence, and reported, of the row whose it is by its name."""
    row, use, path = bench.proven
    bench.write(path, data)
    attestations = Attestations(bench.root)
    said = attestations.at(path)
    check_findings(attestations.faults.values())
    judge = Bench(Policy(aiter_commits=("0123456789",), max_age_days=30, speed_required=True), TODAY, "main")
    claim, sound = Claim(row, use), bench.sound_record
    if said:
        for before, after in ((said, sound), (sound, said)):
            check_findings(of_new_row(claim, after, before, judge, replaces=True))
            check_findings(of_old_row(claim, after, before, judge))
    bench.check_reports([row])
    assert said or attestations.faults
    assert (said and said.record) == Evidence(bench.root).of(row, use), "no report has the record"
    bench.remove(path)


def log_line(data: bytes, bench: Workbench) -> None:
    for line in data.decode("utf-8", "replace")[:MAX_BYTES].splitlines():
        for found in (parse_log_line(line), parse_printed_key(line)):
            check_printed(printable(str(found.key if isinstance(found, Lookup) else found)))
    _import(data, "server.log", bench)


def config(data: bytes, bench: Workbench) -> None:
    _import(data, "config.json", bench)
    _import(data, "config.json", bench, checkpoint="example/Tiny")


def _import(data: bytes, name: str, bench: Workbench, checkpoint: str = "") -> None:
    path = bench.write(f"build/{name}", data)
    result = import_file(path, name, checkpoint, bench.declarations)
    check_findings(result.findings)
    for count in result.counts:
        check_printed(printable(count))
    for target, content in result.files.items():
        check_declaration(target, content)


def index(data: bytes, bench: Workbench) -> None:
    """As the index, the config and the only shard of a checkpoint."""
    from moeshapes.checkpoint.fault import CheckpointError
    from moeshapes.checkpoint.index import CONFIG, INDEX, SINGLE, entries_of, open_index

    for name in (INDEX, CONFIG, SINGLE):
        folder = bench.checkpoint(name, data)
        try:
            opened = open_index(folder)
        except CheckpointError as error:
            check_findings(error.findings)
        else:
            _, findings = entries_of(opened, list(opened.shard_of)[:_FEW])
            check_findings(findings)
            assert all(opened.path(shard).parent == folder for shard in opened.shard_of.values())
            opened.total_bytes()


_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}
_MOST_ZEROS = 1 << 20


def layer(data: bytes, bench: Workbench) -> None:
    """As the config and the tensors' types and shapes of a checkpoint's only layer: found, and compared with a key."""
    from moeshapes.checkpoint.fault import CheckpointError
    from moeshapes.checkpoint.index import CONFIG, SINGLE, open_index
    from moeshapes.checkpoint.stored import stored_layer

    try:
        told = json.loads(data)
        tensors, config = dict(told["tensors"]), json.dumps(told["config"]).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    folder = bench.checkpoint(SINGLE, _zeros(tensors))
    (folder / CONFIG).write_bytes(config)
    try:
        stored = stored_layer(open_index(folder), "layers.0")
    except CheckpointError as error:
        check_findings(error.findings)
    else:
        _check_layer(stored)


def _check_layer(stored: StoredLayer) -> None:
    """Each tensor has a part of each expert that it is of, and a problem of the layer's widths is told to be so."""
    from moeshapes.checkpoint.share import is_of, why_not
    from moeshapes.problem import Activation, Problem

    experts = [*stored.experts, *([stored.shared] if stored.shared else [])]
    for matrix in (matrix for expert in experts for matrix in (expert.gate, expert.up, expert.down)):
        kept = [entry for entry in (matrix.codes, matrix.scales) if entry]
        assert matrix.expert is None or all(matrix.expert < entry.shape[0] for entry in kept)
    problem = Problem(stored.width, stored.inter, len(stored.experts), 1, "bf16", False, Activation("silu"))
    assert is_of(stored, problem)
    check_printed(printable(why_not(stored, problem, 0)))


def _zeros(tensors: dict[str, Any]) -> bytes:
    """A shard of zeros, of tensors given as [type, shape]; what is none of few bytes stands in its header alone."""
    header, end = {}, 0
    for name, described in tensors.items():
        dtype, shape = described if isinstance(described, list) and len(described) == 2 else (described, None)
        start = end
        if isinstance(shape, list) and all(type(dim) is int and dim >= 0 for dim in shape):
            size = _BYTES.get(dtype, 0) if isinstance(dtype, str) else 0
            size *= prod(shape)
            end += size if end + size <= _MOST_ZEROS else 0
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + bytes(end)


def serving(data: bytes, bench: Workbench) -> None:
    """As the results of both arms, and of one arm beside sound ones."""
    from moeshapes.report.serving import Arm, gpus_of, pair_up
    from moeshapes.report.serving_result import read_results
    from moeshapes.report.serving_view import Reference, Serving, as_markdown, as_text

    results, findings = read_results(bench.write("build/results.jsonl", data))
    check_findings(findings)
    for other in (results, bench.sound_results):
        pairs, wrong = pair_up(Arm("before", tuple(results)), Arm("after", tuple(other)))
        check_findings(wrong)
        shown = Serving(
            ("before", "after"),
            tuple(pairs),
            1 if (gpus := gpus_of(pairs)) is None else gpus,
            (Reference("MI300X", 1500.0),),
            {},
        )
        check_printed(as_text(shown))
        check_markdown(as_markdown(shown))


def trace(data: bytes, bench: Workbench) -> None:
    """As a profiler's trace, its steps told apart by annotations and by idle times."""
    from moeshapes.report.serving_view import Serving, as_markdown, as_text
    from moeshapes.report.steps import steps_of
    from moeshapes.report.trace_file import read_trace

    read = read_trace(bench.write("build/trace.json", data))
    if isinstance(read, Finding):
        check_findings([read])
        return
    for gap_us in (None, 50.0):
        steps = steps_of(read, gap_us=gap_us)
        if isinstance(steps, Finding):
            check_findings([steps])
        else:
            shown = Serving((), (), 1, (), {"before": steps, "after": steps})
            check_printed(as_text(shown))
            check_markdown(as_markdown(shown))


def profile(data: bytes, bench: Workbench) -> None:
    """As a tuner's profile: read, paired to candidates, and those made into rows of a table."""
    from moeshapes.select.choice import source_table
    from moeshapes.select.pairing import offers
    from moeshapes.select.profile import read_profile

    read = read_profile(bench.write("build/profile.csv", data), "profile.csv")
    check_findings(read.findings)
    for offer in offers([read], bench.declarations, 3, lambda row: True):
        for reason in offer.refused:
            check_printed(printable(reason))
        for candidate in offer.candidates:
            made = source_table([candidate.row], "profile.csv")
            assert read_tuned_rows(made), made.findings
            check_table(TABLE, made.render())


Run = Callable[[bytes, Workbench], None]
TARGETS: dict[str, Run] = {
    "yaml": yaml_document,
    "table": table,
    "kernel": kernel,
    "record": record,
    "log": log_line,
    "config": config,
    "index": index,
    "layer": layer,
    "serving": serving,
    "trace": trace,
    "profile": profile,
}
