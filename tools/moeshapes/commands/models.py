"""The argument that narrows a command to models, by any of their names."""

from __future__ import annotations

from collections.abc import Sequence

import click

from moeshapes.expand import Declarations
from moeshapes.findings import printable
from moeshapes.questions import NotAnswerableError, model_named

models_argument = click.argument("models", nargs=-1, metavar="[MODEL]...")


def narrowed(declarations: Declarations, names: Sequence[str]) -> Declarations:
    """What is declared of the named models alone; everything without names. Raises UsageError for an unknown one."""
    if not names:
        return declarations
    try:
        wanted = {model_named(name, declarations.models).id for name in names}
    except NotAnswerableError as reason:
        raise click.UsageError(printable(str(reason))) from reason
    return declarations.of_models(wanted)
