"""Questions: the calls that someone asks about, named by a model, by a key or by a line of AITER's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from moeshapes.deployment import Deployment, deployments
from moeshapes.device import has_aiter
from moeshapes.dispatch import is_reachable_bucket
from moeshapes.expand import Declarations
from moeshapes.log_line import MARK, Lookup, parse_key, parse_log_line, parse_printed_key
from moeshapes.model import Model
from moeshapes.recipe import format_of, torch_dtype
from moeshapes.row import UNTUNED_COLUMNS, Key
from moeshapes.runtime.call import RuntimeCall, call_of_key
from moeshapes.runtime.version import Version
from moeshapes.spelling import nearest

_EXAMPLE = "gfx950,256,8,6144,512,257,9,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0"


class NotAnswerableError(ValueError):
    """Nothing that is known is asked about; the message says what is."""


@dataclass(frozen=True)
class Question:
    """A call, whose it is, and what a log says of its lookup. `deployment` is None where the key alone is known."""

    subject: str
    call: RuntimeCall
    logged: Lookup | None = None
    deployment: Deployment | None = None

    @property
    def is_portable(self) -> bool:
        """Whether the portable backend serves the call: a shape says so, or AITER does not run there."""
        return self.deployment.is_portable if self.deployment else not has_aiter(self.call.gfx)


@dataclass(frozen=True)
class Circumstances:
    """What differs from what is declared, or from what a key implies. None and False leave it as it is."""

    expert_mask: bool = False
    topk_width: int | None = None
    gate_mode: str | None = None
    bias: bool = False
    unshuffled: bool = False
    without_flydsl: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    version: Version = field(default_factory=Version)

    def of(self, call: RuntimeCall) -> RuntimeCall:
        """The call under these circumstances. Raises NotAnswerableError where no expert is left to look up."""
        masked = call.expert_mask or self.expert_mask
        width = self.topk_width or call.topk_width + int(masked and not call.expert_mask)
        if width - int(masked) < 1:
            raise NotAnswerableError(f"a width of {width} leaves no expert beside the masked slot")
        return replace(
            call,
            expert_mask=masked,
            topk_width=width,
            gate_mode=self.gate_mode or call.gate_mode,
            bias=self.bias or call.bias,
            shuffled=call.shuffled and not self.unshuffled,
            flydsl=call.flydsl and not self.without_flydsl,
            env={**call.env, **self.env},
            version=self.version,
        )


def is_key_or_log_line(text: str) -> bool:
    return MARK in text or "," in text or bool(parse_printed_key(text))


def ask_about_key(text: str, tokens: Sequence[int], circumstances: Circumstances) -> list[Question]:
    """The calls that ask for a key, as AITER logs it or as it is printed, or for that of a log line.

    Raises NotAnswerableError. Without `tokens`, the call has as many as the key's bucket.
    """
    found = _key_or_lookup(text)
    key, logged = (found, None) if isinstance(found, Key) else (found.key, found)
    try:
        call = call_of_key(key)
    except ValueError as unknown:
        raise NotAnswerableError(str(unknown)) from unknown
    counts = tokens or [key.shape.token]
    asked = [call.with_tokens(n) for n in counts]
    calls = [circumstances.of(each) if has_aiter(call.gfx) else each for each in asked]
    subject = f"key on {key.gfx}/{key.cu_num}"
    return [Question(subject, c, logged if c.bucket == key.shape.token else None) for c in calls]


def _key_or_lookup(text: str) -> Key | Lookup:
    found = parse_log_line(text) if MARK in text else parse_printed_key(text) or parse_key(text.strip().strip("()"))
    if found is None or isinstance(found, str):
        form = "" if MARK in text else f"; a key is {', '.join(('gfx', 'cu_num', *UNTUNED_COLUMNS))}: {_EXAMPLE}"
        raise NotAnswerableError(f"{found or 'the line is about no lookup'}{form}")
    _refuse_impossible(found if isinstance(found, Key) else found.key)
    return found


def _refuse_impossible(found: Key) -> None:
    if not is_reachable_bucket(found.shape.token):
        raise NotAnswerableError(f"no call looks up {found.shape.token} tokens")
    for dtype in (found.shape.q_dtype_a, found.shape.q_dtype_w):
        number = format_of(dtype)
        if number and torch_dtype(number, found.gfx) != dtype:
            own = torch_dtype(number, found.gfx)
            raise NotAnswerableError(f"no call on {found.gfx} asks for {dtype}: its fp8 is {own}")


def ask_about_model(
    name: str, tp: int | None, tokens: Sequence[int], circumstances: Circumstances, declarations: Declarations
) -> list[Question]:
    """The calls of every declared deployment of a model, or of a shape file, with `tp`. Raises NotAnswerableError."""
    asked = _deployments(name, declarations)
    if tp is not None:
        asked = _narrowed(asked, [d for d in asked if d.shape.tp == tp], f"tp {tp}")
    ep = circumstances.expert_mask
    words = "expert parallelism (--ep)" if ep else "tensor parallelism alone (add --ep)"
    asked = _narrowed(asked, [d for d in asked if (d.shape.ep > 1) is ep], words)
    calls = [(d, d.call(n)) for d in asked for n in tokens]
    return [Question(d.name, c if d.is_portable else circumstances.of(c), deployment=d) for d, c in calls]


def _narrowed(asked: Sequence[Deployment], found: list[Deployment], words: str) -> list[Deployment]:
    if not found:
        declared = ", ".join(dict.fromkeys(f"{d.shape.deployment} (tp {d.shape.tp}, ep {d.shape.ep})" for d in asked))
        raise NotAnswerableError(f"nothing is declared with {words}; there are {declared}")
    return found


def _deployments(name: str, declarations: Declarations) -> list[Deployment]:
    known = list(deployments(declarations))
    wanted = name.strip().lower()
    exact = [d for d in known if d.shape.deployment == wanted]
    if exact:
        return exact
    try:
        model = model_named(wanted, declarations.models)
    except NotAnswerableError as unknown:
        raise _no_such_shape(wanted, known) or unknown from None
    found = [d for d in known if d.shape.model == model.id]
    if not found:
        raise NotAnswerableError(f"no shape file serves `{model.id}`")
    return found


def _no_such_shape(wanted: str, known: Iterable[Deployment]) -> NotAnswerableError | None:
    """What to say of a name like a shape file's: the model's shapes or else the closest; None where none is close."""
    names = list(dict.fromkeys(d.shape.deployment for d in known))
    model, slash, _ = wanted.partition("/")
    of_model = [name for name in names if slash and name.startswith(f"{model}/")]
    close = of_model or [name for name in (nearest(wanted, names),) if slash and name]
    listed = " or ".join(f"`{name}`" for name in close)
    return NotAnswerableError(f"there is no shape `{wanted}`: did you mean {listed}?") if close else None


def model_named(name: str, models: Mapping[str, Model]) -> Model:
    """The model of a name, by its file, itself or a checkpoint, or by how it begins. Raises NotAnswerableError."""
    wanted = name.strip().lower()
    named = dict(reversed(list(_spellings(models.values()))))
    beginning = [model for model in models.values() if model.id.startswith(wanted)]
    if wanted in named:
        return named[wanted]
    if len(beginning) == 1:
        return beginning[0]
    close = [model.id for model in beginning] or [spelling for spelling in (nearest(wanted, named),) if spelling]
    hint = f"did you mean {' or '.join(f'`{spelling}`' for spelling in close)}?" if close else "see models/"
    raise NotAnswerableError(f"there is no model `{wanted}`: {hint}")


def _spellings(models: Iterable[Model]) -> Iterator[tuple[str, Model]]:
    """What models may be called, what is surest first: file, name, checkpoints with and without their owner."""
    known = list(models)
    yield from ((model.id, model) for model in known)
    yield from ((model.name.lower(), model) for model in known)
    checkpoints = [(checkpoint.lower(), model) for model in known for checkpoint in model.checkpoints]
    yield from checkpoints
    yield from ((checkpoint.rpartition("/")[2], model) for checkpoint, model in checkpoints)
