"""`--sign`: a signature beside every attested record that a run writes."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.record import RECORDS
from moeshapes.signature import SignatureError, sign, sign_record


def _usable(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path | None:
    """A key that cannot sign is refused before hours of verification, not after."""
    if given:
        try:
            sign(b"", given)
        except SignatureError as error:
            raise click.ClickException(str(error)) from error
    return given


sign_option = click.option(
    "--sign",
    "key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_usable,
    help="An SSH key to sign the attested records of this run with, each in a .sig file beside it.",
)


def sign_attested(record: Path | None, root: Path, key: Path | None) -> None:
    """Signs a record that this run wrote among the attested ones; others, and without a key, are left alone."""
    if record and key and record.is_relative_to(root / RECORDS):
        try:
            sign_record(record, key)
        except SignatureError as error:
            raise click.ClickException(str(error)) from error
