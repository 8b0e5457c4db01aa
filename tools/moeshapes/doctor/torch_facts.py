"""What the installed torch is built for. Run as a program it prints that, so that who asks need not import torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from moeshapes.verify.child import answer_of

_TELL_WITHIN_S = 120.0


@dataclass(frozen=True)
class TorchFacts:
    """Versions, empty where there is none: of torch, and of the HIP and the CUDA that it is built for.

    `problem` says why torch does not tell, empty where it does.
    """

    version: str = ""
    hip: str = ""
    cuda: str = ""
    problem: str = ""


def torch_facts() -> TorchFacts:
    """Asks torch in a process of its own: an import that fails there fails there alone."""
    if find_spec("torch") is None:
        return TorchFacts(problem="torch is not installed")
    answer = answer_of("doctor.torch_facts", _TELL_WITHIN_S, "importing torch", "torch could not be asked")
    if answer.problem:
        return TorchFacts(problem=answer.problem)
    try:
        return TorchFacts(**json.loads(answer.line))
    except (ValueError, TypeError):
        return TorchFacts(problem="what torch printed is not understood")


def main() -> None:
    import torch

    facts = TorchFacts(str(torch.__version__), torch.version.hip or "", torch.version.cuda or "")
    print(json.dumps(asdict(facts)))


if __name__ == "__main__":
    main()
