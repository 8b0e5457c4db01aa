"""The command line: which commands there are, and what an outcome becomes as an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from keyword import iskeyword

import click

from moeshapes import __version__

COMMANDS = {
    "check": "everything that a CPU can check: declarations, generated files, keys, tuned rows",
    "generate": "write the derived files from the YAML, or compare them",
    "keys": "no two tuned rows with one key, here or in an AITER checkout",
    "lint": "static rules on the rows of any tuned table",
    "parity": "AITER's untuned rows against the declared ones, file by file",
    "import": "a config.json, an AITER table or log as YAML",
    "export": "declared and tuned rows into an AITER checkout",
    "explain": "which row a call finds, which kernels run, and by which rules",
    "coverage": "which declared token buckets the tuned tables serve",
    "adopt": "bring measured rows into the tuned tables",
    "select": "judge a tuner's best candidates, and adopt the fastest that is right",
    "tune": "search the portable kernels' candidates, and adopt the fastest that is proven",
    "verify": "judge tuned rows and declared uses against a reference",
    "gate": "what blocks a pull request: collisions, new lint errors, rows without evidence",
    "records": "the verifier's committed records: remove those of rows that are gone",
    "doctor": "what this machine lacks to run AITER's kernels, and how to get it",
    "report": "what a pull request changes, a page of everything, serving with and without rows",
    "bench": "measure the figures that the documentation quotes",
}

NOTHING_FOUND, FINDINGS, CANNOT_RUN, UNEXPECTED, INTERRUPTED = 0, 1, 2, 3, 130


class LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for: a hook must start at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
            command: click.Command = importlib.import_module(f"moeshapes.commands.{module}").command
        except ModuleNotFoundError as missing:
            raise _not_installed(cmd_name, missing) from missing
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing one: a base install lacks what some of them need."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _not_installed(command: str, missing: ModuleNotFoundError) -> Exception:
    if missing.name is None or missing.name.startswith("moeshapes"):
        return missing
    needed = f"`moeshapes {command}` needs {missing.name}, which a base install lacks"
    return click.ClickException(f"{needed}: pip install 'moeshapes[verify]', or run `make {command}`")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="moeshapes")
def moeshapes() -> None:
    """Declare, generate, check and verify AITER fused-MoE configuration rows.

    Exit status: 0 nothing found, 1 findings, 2 cannot run, 3 a fault of moeshapes, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")  # µ, × and → are not in every terminal's encoding
    sys.exit(status_of(arguments))


def status_of(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status; no exception leaves here."""
    try:
        return int(moeshapes.main(args=arguments, prog_name="moeshapes", standalone_mode=False) or NOTHING_FOUND)
    except click.ClickException as refusal:
        refusal.show()
        return CANNOT_RUN
    except (click.Abort, KeyboardInterrupt):
        click.echo("moeshapes: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        click.echo(f"moeshapes: {error}", err=True)
        return CANNOT_RUN
    except Exception as error:
        from moeshapes.crash import write_crash_log

        click.echo(f"moeshapes: unexpected {type(error).__name__}: {error}; see {write_crash_log(error)}", err=True)
        return UNEXPECTED


def _reader_gone() -> int:
    # The interpreter flushes stdout at exit; without this it would complain about the closed pipe once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FINDINGS
