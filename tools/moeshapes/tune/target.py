"""Targets: the declared buckets of the portable kernels that are to be tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from moeshapes.expand import Declarations, DeclaredRow
from moeshapes.findings import Finding, Place
from moeshapes.policy import Deny
from moeshapes.recipe import RECIPES, Recipe
from moeshapes.repository import csv_path, tuned_name
from moeshapes.row import Key
from moeshapes.schema_check import nearest
from moeshapes.tune.faults import NOT_TUNABLE
from moeshapes.verify.gpus import kind_of
from moeshapes.yaml_text import listed_tokens


@dataclass(frozen=True)
class Target:
    """A key to tune, and all that is declared for it: one DeclaredRow a use."""

    key: Key
    declared: tuple[DeclaredRow, ...]

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.declared[0].use.recipe]

    @property
    def deny(self) -> tuple[Deny, ...]:
        """Uses of one key deny the same."""
        return self.declared[0].deny

    @property
    def layer(self) -> tuple[object, ...]:
        """Equal for the buckets of one shape, whose weights are prepared once."""
        shape = replace(self.key.shape, token=0)
        return self.declared[0].csv, self.key.gfx, self.key.cu_num, shape, self.declared[0].use.id


def targets_of(
    declarations: Declarations, names: Sequence[str], tokens: frozenset[int], kinds: Iterable[str]
) -> tuple[list[Target], list[Finding]]:
    """The keys of the named shapes or tables, of GPUs of those kinds and with `tokens` only these buckets.

    And what stands in the way: every name, bucket and GPU without a key to tune.
    """
    here, findings, keys = set(kinds), list[Finding](), dict[Key, None]()
    for name in names:
        rows = [row for row in declarations.rows if row.is_portable and name in _names(row)]
        wanted = [row for row in rows if not tokens or row.row.token in tokens]
        found = [key for row in wanted for key in row.keys if kind_of(key.gfx, key.cu_num) in here]
        keys |= dict.fromkeys(found)
        findings += _missing(declarations, name, rows, tokens)
        if wanted and not found:
            kinds_of_rows = sorted({kind_of(key.gfx, key.cu_num) for row in wanted for key in row.keys})
            message = f"`{name}` is for {', '.join(kinds_of_rows)}, and {_listed(here)}"
            remedy = (
                f"Run it on a {' or '.join(kinds_of_rows)} GPU{', or declare the one here in `gpus`' if here else ''}."
            )
            findings.append(Finding(NOT_TUNABLE, Place("GPU"), message, remedy))
    return [Target(key, declarations.of(key, portable=True)) for key in keys], findings


def _names(row: DeclaredRow) -> tuple[str, ...]:
    """By what a row is asked for: its deployment, its untuned or its tuned table."""
    return row.use.deployment, row.csv, tuned_name(row.csv)


def _missing(
    declarations: Declarations, name: str, rows: Sequence[DeclaredRow], tokens: frozenset[int]
) -> Iterator[Finding]:
    of_aiter = sorted({row.csv for row in declarations.rows if name in _names(row)}) if not rows else []
    if of_aiter:
        message = f"`{name}` is of AITER's kernels, which its own tuner tunes"
        command = f"moeshapes select --tune --aiter DIR --source NOTE {csv_path(of_aiter[0])}"
        yield Finding(NOT_TUNABLE, Place("SHAPE"), message, f"Run `{command}` on its GPU.")
    elif not rows:
        known = sorted({each for row in declarations.rows if row.is_portable for each in _names(row)[:2]})
        yield Finding(NOT_TUNABLE, Place("SHAPE"), f"`{name}` is not declared{nearest(name, known)}")
    undeclared = tokens - {row.row.token for row in rows} if rows else frozenset()
    if undeclared:
        message = f"`{name}` does not declare {listed_tokens(undeclared)} tokens"
        remedy = "Move the buckets from `left_out` to `tokens` in the shape file first."
        yield Finding(NOT_TUNABLE, rows[0].place, message, remedy)


def _listed(kinds: Iterable[str]) -> str:
    found = sorted(kinds)
    return f"here is {', '.join(found)} alone" if found else "there is no GPU here"
