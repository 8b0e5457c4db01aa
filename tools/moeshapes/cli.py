"""The command line: which commands there are, and what an outcome becomes as an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from moeshapes import __version__

COMMANDS = ("check", "generate", "keys", "lint", "adopt", "verify")

NOTHING_FOUND, FINDINGS, CANNOT_RUN, UNEXPECTED, INTERRUPTED = 0, 1, 2, 3, 130


class LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for: a hook must start at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"moeshapes.commands.{cmd_name}").command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="moeshapes")
def moeshapes() -> None:
    """Declare, generate, check and verify AITER fused-MoE configuration rows.

    Exit status: 0 nothing found, 1 findings, 2 cannot run, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> None:
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
