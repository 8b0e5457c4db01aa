"""What is seen of an arm's calls: what AITER chose, what it said, and which kernels the GPU ran."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from moeshapes.backends.production.library import Library
from moeshapes.backends.production.standard_error import overheard
from moeshapes.backends.production.trace import is_capturing, traced

_LOGGER = "aiter"
_NAMES = ("kernelName", "kernelName1", "kernelName2")
"""How AITER's wrappers call the name that they are bound to."""
_SPIED_ON = "spied_on"


@dataclass(frozen=True)
class Chosen:
    """A stage as AITER is about to launch it: its wrapper and the kernel's name, empty where the wrapper has none."""

    wrapper: str
    kernel: str

    def __str__(self) -> str:
        return self.kernel or self.wrapper


@dataclass(frozen=True)
class Choice:
    """What `get_2stage_cfgs` chose for a call. One stage where one kernel does both."""

    stages: tuple[Chosen, ...]
    block_m: int
    ksplit: int
    xbf16: bool
    flat: int

    def __str__(self) -> str:
        return f"{' + '.join(map(str, self.stages))} with block_m {self.block_m}"


def choice_of(metadata: Any) -> Choice:
    """From AITER's MOEMetadata."""
    stages = [metadata.stage1] if metadata.stage2 is None else [metadata.stage1, metadata.stage2]
    bound = getattr(metadata.stage1, "keywords", {})
    return Choice(
        stages=tuple(_chosen(stage) for stage in stages),
        block_m=int(metadata.block_m),
        ksplit=int(metadata.ksplit),
        xbf16=bool(bound.get("xbf16", False)),
        flat=int(bound.get("flat", 0)),
    )


def _chosen(stage: Any) -> Chosen:
    bound = getattr(stage, "keywords", {})
    name = next((bound[key] for key in _NAMES if isinstance(bound.get(key), str)), "")
    function = getattr(stage, "func", stage)
    return Chosen(getattr(function, "__name__", str(function)), name)


@dataclass(frozen=True)
class Question:
    """The arguments of a lookup, so that it can be asked again under another table."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass
class Witness:
    """Everything that was seen so far. `symbols` are those of one call of each token count."""

    library: Library
    choices: dict[Choice, Question] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    symbols: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notes each choice and each line that AITER writes meanwhile."""
        with ExitStack() as stack:
            stack.enter_context(overheard(self.lines))
            stack.enter_context(_listening(self.lines))
            stack.enter_context(self._spying())
            yield

    @contextmanager
    def _spying(self) -> Iterator[None]:
        """`fused_moe` looks the function up in its module: what it is really given and answered is seen."""
        module, original = self.library.fused_moe, self.library.fused_moe.get_2stage_cfgs

        def spy(*arguments: Any, **named: Any) -> Any:
            metadata = original(*arguments, **named)
            self.choices.setdefault(choice_of(metadata), Question(arguments, named))
            return metadata

        for attribute in ("cache_clear", "cache_info"):
            setattr(spy, attribute, getattr(original, attribute))
        setattr(spy, _SPIED_ON, original)
        module.get_2stage_cfgs = spy  # type: ignore[attr-defined]
        try:
            yield
        finally:
            module.get_2stage_cfgs = original  # type: ignore[attr-defined]

    def run(self, tokens: int, call: Callable[[], Tensor]) -> Tensor:
        """What the call returns; traced, where it is the first of that many tokens."""
        if tokens in self.symbols or is_capturing():
            return call()
        result, self.symbols[tokens] = traced(call)
        return result

    def ask_again(self, question: Question) -> Choice:
        """What AITER answers to the same lookup now; not noted as a choice."""
        function = self.library.fused_moe.get_2stage_cfgs
        lookup = getattr(function, _SPIED_ON, function)
        return choice_of(lookup(*question.arguments, **question.named))


class _Listener(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _listening(lines: list[str]) -> Iterator[None]:
    """Appends what AITER logs to `lines`, whatever its level is set to."""
    logger, listener = logging.getLogger(_LOGGER), _Listener(lines)
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(listener)
