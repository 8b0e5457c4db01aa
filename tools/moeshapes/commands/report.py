"""`moeshapes report`: the last verification, what a pull request changes, or a page of everything."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import click

from moeshapes.commands.extra import saying_what_to_install
from moeshapes.commands.options import optional_root_option, shapes_root
from moeshapes.commands.serving import command as serving
from moeshapes.files import write_where_told
from moeshapes.record import REPORT


@click.group("report", short_help="Print what changed and what proves it.", invoke_without_command=True)
@click.option("--base", metavar="REF", help="Report what changed since this tree left that branch or commit.")
@click.option("--format", "style", type=click.Choice(("md", "html")), default="md", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write there instead of to stdout.")
@click.option("--link", default="", metavar="TEMPLATE", help="URL of a row, with {file}, {line} and {commit}.")
@click.option("--limit", type=int, metavar="BYTES", help="Fold and cut markdown to at most so many; else 1 MiB.")
@optional_root_option
@click.pass_context
def command(
    context: click.Context,
    base: str | None,
    style: str,
    output: Path | None,
    link: str,
    limit: int | None,
    root: Path | None,
) -> None:
    """Print what the last `moeshapes verify` found, as markdown.

    With --base, what a pull request changes: new keys, evidence, speed, kernels before and after. With --format html,
    one page of all rows, deployments and records. `serving` compares two arms of a serving benchmark.
    """
    if context.invoked_subcommand:
        return
    if base is None and limit is not None:
        raise click.UsageError("--limit is for what --base reports")
    if base is not None and style == "html":
        raise click.UsageError("the page has everything: it takes no --base")
    top = shapes_root(root)
    of_verify = base is None and style == "md"
    text = _last_verification(top) if of_verify else _rendered(top, base, link, limit)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_where_told(output, text.encode())


command.add_command(serving)


def _last_verification(root: Path) -> str:
    path = root / REPORT
    if not path.is_file():
        raise click.ClickException(f"there is no {REPORT} yet: run `make verify` first")
    return path.read_text(encoding="utf-8", errors="replace")


def _rendered(root: Path, base: str | None, link: str, limit: int | None) -> str:
    """The markdown of what changed since `base`, or the page."""
    with saying_what_to_install("report"):
        from moeshapes.report.gather import page_of, pull_request_of
        from moeshapes.report.render import SMALLEST, STEP_SUMMARY, render_pull_request
    from moeshapes.git import GitError, open_git
    from moeshapes.report.links import LinkError, Links

    if limit is not None and limit < SMALLEST:
        raise click.BadParameter(f"what is not cut needs {SMALLEST} bytes", param_hint="--limit")
    try:
        links = Links(link, open_git(root).commit("HEAD"))
        if base is None:
            return page_of(root, links, datetime.now(timezone.utc))
        return render_pull_request(pull_request_of(root, base), links, limit or STEP_SUMMARY)
    except LinkError as error:
        raise click.BadParameter(str(error), param_hint="--link") from error
    except GitError as error:
        raise click.ClickException(str(error)) from error
