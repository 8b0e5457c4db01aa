"""Makes or refreshes this repository's virtual environment, and does nothing where nothing changed.

Run by `make` with the interpreter to build on; needs the standard library alone. Where that interpreter already has
torch (a ROCm container, often itself a venv), its site-packages are added to the new environment and torch is never
installed or resolved again: a container's torch belongs to its driver. Elsewhere constraints.txt names the torch.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)
INPUTS = ("pyproject.toml", "constraints.txt", "tools/bootstrap.py")
STAMP = "moeshapes-setup.json"
PARENT_PACKAGES = "zz-moeshapes-parent.pth"
"""Read last, so that what is installed in the environment itself comes before the parent's."""

EXTRAS = "verify,portable,report,dev"
EXTRAS_BESIDE_A_PARENT_TORCH = "numeric,report,dev"
EXTRAS_OF_BASE = "test"

TORCH_FAMILY = ("torch", "triton", "pytorch-triton", "pytorch-triton-rocm", "torchvision", "torchaudio", "numpy")
"""What a parent's torch was built against: kept at exactly the parent's versions."""
NUMPY_DEPENDANTS = ("pandas", "scipy", "ml-dtypes", "pandas-stubs")
"""Not pinned beside a parent's torch: any version that suits the parent's numpy."""


class SetupError(Exception):
    """Set-up cannot go on; the text is the one line that says what to do."""


def main() -> int:
    options = _options()
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise SetupError(f"{_python()} is too old: moeshapes needs 3.10 or newer; name one with PYTHON=python3.11")
        if options.as_is:
            check_modules(options.needs)
        else:
            make_ready(ROOT / options.venv, options.base)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("setup: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make or refresh the virtual environment of this repository.")
    parser.add_argument("--venv", default=".venv", help="where the environment is, from the repository's root")
    parser.add_argument("--base", action="store_true", help="the base install and the test runner alone, never torch")
    parser.add_argument("--as-is", action="store_true", help="make nothing; only check that this interpreter will do")
    parser.add_argument("--needs", nargs="*", default=[], help="with --as-is: modules that must be importable")
    return parser.parse_args()


def check_modules(needed: list[str]) -> None:
    """Refuses an interpreter that lacks a module, naming all that it lacks."""
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise SetupError(
            f"VENV= uses {_python()} as it is, and it lacks {names}: install them there, or leave VENV= out"
        )


def make_ready(venv: Path, base: bool) -> None:
    """Brings `venv` to what pyproject.toml, constraints.txt and this interpreter ask for, from whatever it is now."""
    found = _read_stamp(venv)
    if Path(sys.prefix).resolve() == venv.resolve():
        _restart_with_maker(found)
    wanted = describe(base)
    if found != wanted:
        with _one_at_a_time():
            _make(venv, base, wanted)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    # Installs for different environments write the same files into the repository: tools/*.egg-info.
    with (ROOT / "pyproject.toml").open("rb") as common:
        fcntl.flock(common, fcntl.LOCK_EX)
        yield


def _make(venv: Path, base: bool, wanted: dict[str, str]) -> None:
    found = _read_stamp(venv)
    if found == wanted:  # by another process, while this one waited
        return
    started = time.monotonic()
    torch = None if base else _working_torch()
    if not found or any(found.get(name) != wanted[name] for name in ("root", "python", "version", "torch")):
        _create(venv)
    (venv / STAMP).unlink(missing_ok=True)
    _install(venv, base, torch)
    if torch and (seen := _torch_file(_interpreter(venv))) != torch:
        raise SetupError(
            f"{venv.name} would import torch from {seen or 'nowhere'}, not from {torch}: report this as a bug"
        )
    (venv / STAMP).write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    print(f"setup: {venv.name} is ready, {time.monotonic() - started:.0f} s", flush=True)


def describe(base: bool) -> dict[str, str]:
    """What an environment made now would be made from; an environment whose stamp says the same is up to date."""
    digest = hashlib.sha256()
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes() + b"\0")
    return {
        "root": str(ROOT),
        "python": sys.executable,
        "version": platform.python_version(),
        "torch": "" if base else _parent_torch(),
        "inputs": digest.hexdigest(),
    }


def _read_stamp(venv: Path) -> dict[str, str]:
    try:
        stamp: dict[str, str] = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if _interpreter(venv).exists() else {}


def _restart_with_maker(stamp: dict[str, str]) -> None:
    # Run from inside the environment itself (it is activated): it cannot be its own parent.
    maker = stamp.get("python", "")
    if not Path(maker).is_file():
        raise SetupError("the active python3 is the environment's own and its maker is gone: run `deactivate` first")
    os.execv(maker, [maker, *sys.argv])


def _parent_torch() -> str:
    spec = importlib.util.find_spec("torch")
    return (spec.origin or "") if spec else ""


def _working_torch() -> str:
    """The file that `import torch` gives in this interpreter; empty where it has none."""
    found = _parent_torch()
    if not found:
        return ""
    imported = _torch_file(sys.executable)
    if not imported:
        raise SetupError(f"{found} does not import in {_python()}: repair it, or name another interpreter with PYTHON=")
    return imported


def _torch_file(python: str | Path) -> str:
    command = [str(python), "-c", "import torch; print(torch.__file__)"]
    done = subprocess.run(command, cwd=os.sep, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else ""


def _create(venv: Path) -> None:
    if venv.exists() and not (venv / "pyvenv.cfg").is_file():
        raise SetupError(f"{venv} is there and is no virtual environment: move it away, or name another with VENV=DIR")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(f"{_python()} has no venv module: apt-get install python3-venv, or name another with PYTHON=")
    print(f"setup: making {venv.name} with {_python()}", flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False).returncode:
        raise SetupError(f"{_python()} could not make {venv}: see above; another interpreter is named with PYTHON=")


def _install(venv: Path, base: bool, torch: str | None) -> None:
    if torch:
        print(f"setup: torch is this interpreter's own, {torch}", flush=True)
        _add_parent_packages(venv)
    constraints = venv / "constraints.txt"
    constraints.write_text(constraints_beside(_versions_here()) if torch else _pinned(), encoding="utf-8")
    extras = EXTRAS_OF_BASE if base else EXTRAS_BESIDE_A_PARENT_TORCH if torch else EXTRAS
    print(f"setup: installing moeshapes[{extras}]", flush=True)
    pip = [str(_interpreter(venv)), "-m", "pip", "--disable-pip-version-check", "install"]
    # Compiling all modules takes longer than installing them; those that are imported are compiled then.
    what = ["--no-compile", "-c", str(constraints), "-e", f"{ROOT}[{extras}]"]
    done = subprocess.run([*pip, *what], cwd=venv, check=False)
    if done.returncode:
        raise SetupError("pip could not install (see above); without a registry, `make … VENV=` needs no pip")


def _add_parent_packages(venv: Path) -> None:
    # addsitedir, not a bare path: the parent's own .pth files (editable installs such as AITER's) count as well.
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    parents = [path for path in [*site.getsitepackages(), *user] if Path(path).is_dir()]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in parents]
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / PARENT_PACKAGES).write_text("".join(lines), encoding="utf-8")


def _versions_here() -> dict[str, str]:
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        found.setdefault(_normal(distribution.metadata["Name"] or ""), distribution.version)
    return found


def constraints_beside(present: dict[str, str]) -> str:
    """constraints.txt, except that the torch family has the parent's exact versions (local labels included)."""
    loose = (*TORCH_FAMILY, *NUMPY_DEPENDANTS)
    pins = [line for line in _pinned().splitlines() if _requirement_name(line) not in loose]
    held = [f"{name}=={present[name]}" for name in TORCH_FAMILY if name in present]
    return "\n".join([*pins, *held, ""])


def _pinned() -> str:
    return (ROOT / "constraints.txt").read_text(encoding="utf-8")


def _requirement_name(line: str) -> str:
    return _normal(re.split(r"[=<>;\s]", line, maxsplit=1)[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _interpreter(venv: Path) -> Path:
    return venv / "bin" / "python"


def _python() -> str:
    return f"Python {platform.python_version()} ({sys.executable})"


if __name__ == "__main__":
    sys.exit(main())
