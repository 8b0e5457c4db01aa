"""What the installed torch is built for. Run as a program it prints that, so that who asks need not import torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from moeshapes.verify.child import child_environment

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
    command = [sys.executable, "-m", "moeshapes.doctor.torch_facts"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TELL_WITHIN_S, env=child_environment()
        )
        return TorchFacts(**json.loads(_last_line(done.stdout)))
    except subprocess.CalledProcessError as error:
        return TorchFacts(problem=_last_line(error.stderr) or f"importing torch ended with status {error.returncode}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return TorchFacts(problem=f"torch could not be asked: {error}")
    except (ValueError, TypeError):
        return TorchFacts(problem="what torch printed is not understood")


def _last_line(text: str) -> str:
    """Libraries may have printed before it."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def main() -> None:
    import torch

    facts = TorchFacts(str(torch.__version__), torch.version.hip or "", torch.version.cuda or "")
    print(json.dumps(asdict(facts)))


if __name__ == "__main__":
    main()
