"""Shapes: how one model is served at one parallelism, and which token buckets are to be tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moeshapes.device import COMPUTE_UNITS, has_device
from moeshapes.dispatch import VARIABLES, bucket_of, is_reachable_bucket
from moeshapes.document import Document
from moeshapes.findings import Finding, Place
from moeshapes.kernel_name import POLICY_FIELDS, PolicyField
from moeshapes.policy import Deny
from moeshapes.recipe import RECIPES, QType, Recipe
from moeshapes.row import is_portable
from moeshapes.rule import Rule, Severity
from moeshapes.schema_check import check_schema, closest, nearest
from moeshapes.tokens import parse_tokens

TOKEN_RANGE = Rule(
    "MOE030", "token-range", Severity.ERROR,
    what="A range of token buckets does not run from one power of two up to another.",
    why="Buckets up to 32768 are powers of two, so other ends leave in doubt which buckets are meant.",
    fix="Write a range such as 1..32768 or 2048.., or list the buckets.",
)  # fmt: skip
UNREACHABLE_BUCKET = Rule(
    "MOE031", "unreachable-bucket", Severity.ERROR,
    what="A token count is declared that no call of fused_moe ever looks up, or is marked so and is not.",
    why="A row for it costs tuning time and is never used.",
    fix="Use a power of two up to 32768, or 131072.",
)  # fmt: skip
BUCKET_TWICE = Rule(
    "MOE032", "bucket-twice", Severity.ERROR,
    what="One entry names a token bucket twice: to be tuned and left out, or twice in one of the two.",
    why="It cannot be told which of the two is meant.",
    fix="Keep one of them.",
)  # fmt: skip
ENVIRONMENT_VALUE = Rule(
    "MOE033", "environment-value", Severity.ERROR,
    what="An environment variable that AITER reads as a whole number has another value.",
    why="AITER fails at start, or reads something that was not meant.",
    fix="Give it a whole number.",
)  # fmt: skip
POLICY_FIELD = Rule(
    "MOE034", "policy-field", Severity.ERROR,
    what="A kernel policy matches on a field or value that no kernel name has.",
    why="It would deny nothing, and look as if it did.",
    fix="Use a field of the kernel grammar with one of its values.",
)  # fmt: skip

Q_TYPE_SPELLING = Rule(
    "MOE035", "q-type-spelling", Severity.ERROR,
    what="An override spells q_type as another one than the recipe's.",
    why="The tuner would measure another quantisation than the one that is declared.",
    fix="Remove the spelling, or correct the recipe.",
)  # fmt: skip

NO_SUCH_DEVICE = Rule(
    "MOE036", "no-such-device", Severity.WARNING,
    what="No known device of the architecture has so many compute units, whole or as an equal partition.",
    why="The key of a tuned row has both numbers: on the device that was meant, no call would find the row.",
    fix="Compare gfx and the compute units with what rocminfo, or torch.cuda.get_device_properties, shows.",
)  # fmt: skip

_REQUIRED = ("model", "tp", "csv", "gpus", "recipe", "moe")
_OVERRIDDEN = ("model_dim", "inter_dim", "expert", "topk")
_KEYS = (*_REQUIRED, "ep", "gate_mode", "env", "pad", "pads", "doweight_stage1", "kernels", "not_upstream")


@dataclass(frozen=True, order=True)
class Gpu:
    """A device that serves: its architecture and its compute units."""

    gfx: str
    cu_num: int


@dataclass(frozen=True)
class LeftOut:
    """Why a token bucket is not tuned, and where that is said."""

    reason: str
    place: Place


@dataclass(frozen=True)
class Entry:
    """A block of the model as it is served: item `index` of `moe`. `tokens` maps each bucket to tune to its place.

    `shared_experts` is `fused`, `separate`, or empty where the file does not say, which counts as separate.
    `q_type` is how its untuned rows spell that column where they do not as the recipe does, else empty.
    `faulty` has the keys whose values are not wholly sound; their fields hold what is.
    """

    index: int
    block: str
    shared_experts: str
    tokens: Mapping[int, Place]
    left_out: Mapping[int, LeftOut]
    unreachable: frozenset[int]
    override: Mapping[str, int]
    q_type: str
    faulty: frozenset[str]

    @property
    def shared_experts_fused(self) -> bool:
        return self.shared_experts == "fused"


@dataclass(frozen=True)
class Shape:
    """A shape file. `deployment` is its path below shapes/ without .yaml; `pad` maps dims to their multiples.

    `not_upstream` says why AITER lists none of its rows, or only some; empty where it lists all.
    `faulty` has the keys whose values are missing or not wholly sound; their fields hold what is, or a stand-in.
    """

    deployment: str
    model: str
    tp: int
    ep: int
    csv: str
    not_upstream: str
    gpus: tuple[Gpu, ...]
    recipe: Recipe
    gate_mode: str
    env: Mapping[str, str]
    pad: Mapping[str, int]
    pads: tuple[str, ...]
    doweight_stage1: bool
    entries: tuple[Entry, ...]
    deny: tuple[Deny, ...]
    faulty: frozenset[str]
    document: Document

    @property
    def is_portable(self) -> bool:
        """Whether its rows are of the portable Triton kernels, and not of AITER's."""
        return is_portable(self.csv)

    def is_sound(self, *keys: str) -> bool:
        """Whether what these keys say can be judged."""
        return self.faulty.isdisjoint(keys)


def read_shape(deployment: str, document: Document) -> tuple[Shape, list[Finding]]:
    """The sound part of a shape file, and all that is wrong with the file by itself."""
    value, findings = check_schema(document, "shape")
    reader = _Reader(document, findings)
    faulty = _faulty_keys(document, value)
    entries = tuple(reader.entry(n, entry) for n, entry in enumerate(value.get("moe", ())) if entry is not None)
    deny = tuple(reader.deny(n, item) for n, item in enumerate(value.get("kernels", {}).get("deny", ())) if item)
    gpus = tuple(reader.gpu(n, gpu) for n, gpu in enumerate(value.get("gpus", ())) if gpu)
    env = reader.env(value.get("env", {}))
    pads = value.get("pads", "zeros")
    shape = Shape(
        deployment=deployment,
        model=value.get("model", ""),
        tp=value.get("tp", 1),
        ep=value.get("ep", 1),
        csv=value.get("csv", ""),
        not_upstream=value.get("not_upstream", ""),
        gpus=gpus,
        recipe=RECIPES[value.get("recipe", "bf16")],
        gate_mode=value.get("gate_mode", "separated"),
        env=env,
        pad=value.get("pad", {}),
        pads=tuple(pads) if isinstance(pads, list) else (pads,),
        doweight_stage1=value.get("doweight_stage1", False),
        entries=entries,
        deny=deny,
        faulty=faulty if len(env) == len(value.get("env", {})) else faulty | {"env"},
        document=document,
    )
    return shape, findings


def _faulty_keys(document: Document, sound: Mapping[str, Any]) -> frozenset[str]:
    """The outermost keys whose values are missing or not wholly sound, and those that a misspelt key may stand for."""
    written = document.value if isinstance(document.value, dict) else {}
    faulty = _differing(written, sound) | (set(_REQUIRED) - sound.keys())
    meant = {closest(key, _KEYS) for key in faulty if key not in _KEYS}
    return frozenset(faulty | {key for key in meant if key and key not in written})


def _differing(written: Mapping[str, Any], sound: Mapping[str, Any]) -> set[str]:
    return {key for key in written if key not in sound or written[key] != sound[key]}


class _Reader:
    """Reads the parts of a shape file that a schema cannot judge."""

    def __init__(self, document: Document, findings: list[Finding]) -> None:
        self.document = document
        self.findings = findings

    def entry(self, index: int, value: Mapping[str, Any]) -> Entry:
        path = ("moe", index)
        marked = value.get("unreachable")
        unreachable = set(self._tokens(marked["tokens"], *path, "unreachable", "tokens")) if marked else set()
        tokens = self._tokens(value.get("tokens", []), *path, "tokens")
        left_out = self._left_out(value, index)
        for token in tokens.keys() & left_out.keys():
            message = f"bucket {token} is left out here and listed at line {tokens[token].line}"
            self._report(BUCKET_TWICE, left_out[token].place, message)
        self._check_reachable(tokens, unreachable, index)
        return Entry(
            index=index,
            block=value["block"],
            shared_experts=value.get("shared_experts", ""),
            tokens=tokens,
            left_out=left_out,
            unreachable=frozenset(unreachable),
            override={key: value["override"][key] for key in _OVERRIDDEN if key in value.get("override", {})},
            q_type=self._q_type(value.get("override", {}).get("q_type"), index),
            faulty=frozenset(_differing(self._written(index), value)),
        )

    def gpu(self, index: int, value: Mapping[str, Any]) -> Gpu:
        gpu = Gpu(**value)
        if not has_device(gpu.gfx, gpu.cu_num):
            known = ", ".join(f"{units} ({name})" for name, units in COMPUTE_UNITS[gpu.gfx].items())
            message = f"no {gpu.gfx} device has {gpu.cu_num} compute units; known: {known}"
            others = [gfx for gfx in COMPUTE_UNITS if has_device(gfx, gpu.cu_num)]
            remedy = f"If {gpu.cu_num} is right, write `gfx: {others[0]}`; else correct `cu_num`." if others else ""
            self._report(NO_SUCH_DEVICE, self.document.place("gpus", index, "cu_num"), message, remedy)
        return gpu

    def _q_type(self, spelling: str | None, index: int) -> str:
        document: Any = self.document.value
        recipe = str(document.get("recipe"))
        if spelling and recipe in RECIPES and RECIPES[recipe].q_type is not QType.PER_1X128:
            place = self.document.place("moe", index, "override", "q_type")
            message = f"`{spelling}` is a spelling of per_1x128; {recipe} has {RECIPES[recipe].q_type.value}"
            self._report(Q_TYPE_SPELLING, place, message)
        return f"QuantType.{spelling}" if spelling else ""

    def _written(self, index: int) -> Mapping[str, Any]:
        document: Any = self.document.value
        written: Mapping[str, Any] = document["moe"][index]
        return written

    def _tokens(self, value: Any, *path: str | int) -> dict[int, Place]:
        """The token counts of one `tokens` value, with their places, in the order written."""
        found: dict[int, Place] = {}
        sound = [item for item in value if item is not None] if isinstance(value, list) else value
        for token, below in parse_tokens(sound):
            place = self.document.place(*path, *below)
            if isinstance(token, str):
                self._report(TOKEN_RANGE, place, token)
            elif token in found:
                self._report(BUCKET_TWICE, place, f"bucket {token} is listed twice")
            else:
                found[token] = place
        return found

    def _left_out(self, value: Mapping[str, Any], index: int) -> dict[int, LeftOut]:
        left_out: dict[int, LeftOut] = {}
        for n, item in enumerate(value.get("left_out", ())):
            tokens = self._tokens(item["tokens"], "moe", index, "left_out", n, "tokens") if item else {}
            for token, place in tokens.items():
                if token in left_out:
                    self._report(BUCKET_TWICE, place, f"bucket {token} is left out twice")
                left_out[token] = LeftOut(item["reason"], place)
                if not is_reachable_bucket(token):
                    self._report_unreachable(token, place, "remove it")
        return left_out

    def _check_reachable(self, tokens: Mapping[int, Place], marked: set[int], index: int) -> None:
        for token, place in tokens.items():
            if not is_reachable_bucket(token) and token not in marked:
                otherwise = f"list {token} under `unreachable` with a note on why its row is kept"
                self._report_unreachable(token, place, otherwise)
        for token in sorted(marked):
            place = self.document.place("moe", index, "unreachable", "tokens")
            if is_reachable_bucket(token):
                self._report(UNREACHABLE_BUCKET, place, f"bucket {token} is marked unreachable, but calls look it up")
            elif token not in tokens:
                self._report(UNREACHABLE_BUCKET, place, f"{token} is marked unreachable, but is not among the `tokens`")

    def _report_unreachable(self, token: int, place: Place, otherwise: str) -> None:
        bucket = bucket_of(token)
        message = f"no call looks up {token} tokens: calls of {token} tokens look up {bucket}"
        self._report(UNREACHABLE_BUCKET, place, message, f"Write {bucket}, or {otherwise}.")

    def env(self, value: Mapping[str, int | str]) -> dict[str, str]:
        """The environment as text, without values that AITER could not read."""
        texts = {name: str(setting) for name, setting in value.items()}
        for name in VARIABLES:
            if name in texts and not texts[name].removeprefix("-").isdecimal():
                message = f"`{name}` is `{texts[name]}`, which is not a whole number"
                self._report(ENVIRONMENT_VALUE, self.document.place("env", name), message)
                del texts[name]
        return texts

    def deny(self, index: int, value: Mapping[str, Any]) -> Deny:
        path = ("kernels", "deny", index)
        for name, expected in value["match"].items():
            fault = _policy_fault(name, expected)
            if fault:
                self._report(POLICY_FIELD, self.document.key_place(*path, "match", name), fault)
        return Deny(value["match"], value["reason"], self.document.place(*path))

    def _report(self, rule: Rule, place: Place, message: str, remedy: str = "") -> None:
        self.findings.append(Finding(rule, place, message, remedy))


_FIELDS: Mapping[str, PolicyField] = {field.name: field for field in POLICY_FIELDS}


def _policy_fault(name: str, expected: object) -> str:
    """Why a policy cannot match on this field and value; empty where it can."""
    if name not in _FIELDS:
        hint = nearest(name, list(_FIELDS)) or f"; there are {', '.join(_FIELDS)}"
        return f"kernel names have no field `{name}`{hint}"
    field = _FIELDS[name]
    if type(expected) is not field.type:
        kind = {int: "a whole number", str: "text", bool: "true or false"}[field.type]
        return f"`{name}` must be {kind}, not `{expected}`"
    if field.choices and expected not in field.choices:
        hint = nearest(str(expected), [str(choice) for choice in field.choices])
        return f"`{name}` is never `{expected}`; it is {', '.join(map(str, field.choices))}{hint}"
    return ""
