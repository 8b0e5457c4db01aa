"""The plan of a verification: which (row, use) pairs become jobs, and why others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from typing import Any

from moeshapes import __version__
from moeshapes.dispatch import is_reachable_bucket, tokens_of
from moeshapes.expand import Declarations
from moeshapes.findings import Place
from moeshapes.problem import Problem, problem_of
from moeshapes.recipe import recipe_of
from moeshapes.record import digest, verifier_digest
from moeshapes.row import Key, TunedRow
from moeshapes.use import Use
from moeshapes.verify.job import EVERY_EXPERT, Job
from moeshapes.verify.judgeable import why_not_judged
from moeshapes.verify.merged_tables import MergedTables
from moeshapes.verify.site import AUTO, EMULATE, PRODUCTION, WITHOUT_GPU, Placement, Site

DEFAULT_PLAN_BUCKETS = (1, 8)
SEED = 20260822
UNDECLARED = "undeclared"
_DISTINCT_ELEMENTS, _DEFAULT_PLAN_ELEMENTS = 64_000_000, 24_000_000
"""Distinct weights a layer, in elements: 256 and 96 MB where they are expanded to fp32."""


@dataclass(frozen=True)
class Subject:
    """What is verified: a tuned row, or for None the default plan of a declared key, under one use.

    `portable` says that it is declared for the portable kernels, whose default plan is another than AITER's.
    """

    key: Key
    use: Use
    row: TunedRow | None
    portable: bool = False

    @property
    def is_portable(self) -> bool:
        """Whether the portable backend runs it."""
        return self.row.is_portable if self.row else self.portable

    @property
    def name(self) -> str:
        shape = self.key.shape
        what = "default plan" if self.row is None else str(self.row.place)
        return f"{shape.dims} {self.use.recipe} token {shape.token} ({what})"


@dataclass(frozen=True)
class Planned:
    """A subject with its job, or with the reason why it has none.

    `note` says why a row is emulated whose kernels could run. `versions` are what the job's result depends on.
    `lacks_gpu`: a row that would run on a GPU of its kind, if one were here.
    """

    subject: Subject
    job: Job | None
    skipped: str = ""
    note: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    lacks_gpu: bool = False


@dataclass(frozen=True)
class _Circumstances:
    """What is the same for all subjects of a plan."""

    versions: Mapping[str, str]
    site: Site
    merged: MergedTables
    timed: bool
    replaced: Mapping[Place, dict[str, Any]]


def plan(
    declarations: Declarations,
    rows: Iterable[TunedRow],
    with_defaults: bool,
    site: Site = WITHOUT_GPU,
    merged: MergedTables | None = None,
    timed: bool = False,
    replaced: Mapping[Place, dict[str, Any]] | None = None,
) -> list[Planned]:
    """Every row under every declared use of its key and, `with_defaults`, a default plan of every (shape, use).

    `merged` are the tables that AITER's lookups find rows in, where AITER runs. `timed` asks for the speed of rows that
    a GPU runs, by the row's place also against the launch fields that it replaced.
    """
    here = _Circumstances(versions_in_use(), site, merged or MergedTables(), timed, replaced or {})
    planned = [_planned(subject, reason, here) for subject, reason in _row_subjects(declarations, rows)]
    if with_defaults:
        planned += [_planned(subject, "", here) for subject in _default_subjects(declarations, site)]
    return planned


def versions_in_use() -> dict[str, str]:
    """The versions that an emulated result depends on."""
    return {"torch": _version_of("torch"), "moeshapes": __version__, "verifier": verifier_digest()}


def _row_subjects(declarations: Declarations, rows: Iterable[TunedRow]) -> Iterator[tuple[Subject, str]]:
    for row in rows:
        uses = declarations.uses_of(row)
        if uses:
            yield from ((Subject(row.key, use, row), why_not_judged(row, use)) for use in uses)
        else:
            use, reason = undeclared_use(row.key)
            yield Subject(row.key, use, row), reason or why_not_judged(row, use)


def undeclared_use(key: Key) -> tuple[Use, str]:
    """The plainest use of a key that no shape declares, and why it cannot be verified where it cannot.

    No pads, no limit but Swiglu's own, no bias, no shared expert. Situv2 has parameters that only a model can state.
    """
    shape = key.shape
    recipe = recipe_of(shape.q_dtype_a, shape.q_dtype_w, shape.q_type)
    activation = shape.act_type.rpartition(".")[2].lower()
    interleaved = recipe is not None and recipe.name in ("a8w4", "mxfp8")
    use = Use(
        deployment=UNDECLARED,
        block="row",
        recipe=recipe.name if recipe else "",
        activation=activation,
        gate_mode="interleave" if interleaved else "separated",
        swiglu_limit=7.0 if activation == "swiglu" else None,
        swiglu_alpha=1.702 if activation == "swiglu" else None,
    )
    if recipe is None:
        return use, f"no recipe has {shape.q_dtype_a}, {shape.q_dtype_w}, {shape.q_type}"
    if activation == "situv2":
        return use, "Situv2 needs the model's situ_beta and situ_linear_beta, and no shape declares this key"
    return use, "" if shape.use_g1u1 else "rows without a gate (use_g1u1 = 0) are not verified yet"


def _default_subjects(declarations: Declarations, site: Site) -> Iterator[Subject]:
    """One subject a declared (shape, use) and bucket, on the first of the shape's GPUs that is here or else at all."""
    seen = set()
    for declared in declarations.rows:
        key = next(filter(site.has_gpu, declared.keys), next(iter(declared.keys)))
        for token in DEFAULT_PLAN_BUCKETS:
            at_token = replace(key, shape=replace(key.shape, token=token))
            subject = Subject(at_token, declared.use, None, declared.is_portable)
            name = (subject.key, declared.use.id)
            if name not in seen:
                seen.add(name)
                yield subject


def _planned(subject: Subject, reason: str, here: _Circumstances) -> Planned:
    launch = None if subject.row is None else subject.row.launch()
    place = here.site.place(subject.key, subject.is_portable)
    is_elsewhere = here.site.backend == AUTO and not here.site.has_gpu(subject.key)
    lacks_gpu = is_elsewhere and not reason and subject.row is not None
    if reason or place.refused:
        return Planned(subject, None, reason or place.refused, lacks_gpu=lacks_gpu)
    versions = {**here.versions, **_library_version(place)}
    job = _job(subject, launch, place, versions)
    if place.backend == PRODUCTION:
        job = _for_aiter(job, subject, here.merged)
    if here.timed and subject.row is not None and place.gpu is not None:
        job = replace(job, speed=True, replaced=here.replaced.get(subject.row.place))
    return Planned(subject, job, note=place.note, versions=versions, lacks_gpu=lacks_gpu)


def _library_version(place: Placement) -> dict[str, str]:
    """Of what brings the kernels."""
    if place.gpu is None:
        return {}
    return {"aiter": place.gpu.aiter} if place.backend == PRODUCTION else {"triton": place.gpu.triton or "none"}


def _for_aiter(job: Job, subject: Subject, merged: MergedTables) -> Job:
    """The job with what AITER's dispatch depends on beside the call; so does what its result vouches for."""
    lookup = merged.lookup(subject.key, subject.row)
    return replace(job, id=digest([job.id, asdict(lookup)]), env=dict(subject.use.env), lookup=lookup)


def _job(subject: Subject, launch: dict[str, Any] | None, place: Placement, versions: Mapping[str, str]) -> Job:
    problem = problem_of(subject.key, subject.use)
    identity = identity_of(subject, problem, launch, place.backend, versions)
    emulated_elements = _DISTINCT_ELEMENTS if subject.row else _DEFAULT_PLAN_ELEMENTS
    return Job(
        id=digest(identity),
        name=subject.name,
        use_id=subject.use.id,
        token=subject.key.shape.token,
        counts=_counts_to_run(subject),
        problem=problem,
        launch=launch,
        backend=place.backend,
        device="cuda" if place.gpu else "cpu",
        seed=SEED,
        max_elements=EVERY_EXPERT if place.gpu else emulated_elements,
        thorough=subject.row is not None,
        gpu=place.gpu.kind if place.gpu else "",
    )


def identity_of(
    subject: Subject, problem: Problem, launch: dict[str, Any] | None, backend: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """What a record vouches for: never times, since a row that was only timed again computes the same.

    An emulated default plan, which is of no row, is the same for whoever has the problem, on any GPU.
    """
    of_whom = {
        "key": [subject.key.gfx, subject.key.cu_num, *subject.key.shape.cells()],
        "use": subject.use.id,
        "env": dict(subject.use.env),
    }
    return {
        **({} if subject.row is None and backend == EMULATE else of_whom),
        "launch": launch,
        "counts": _counts_to_run(subject),
        "problem": problem.as_json(),
        "backend": backend,
        "seed": SEED,
        "versions": dict(versions),
    }


def counts_of(bucket: int) -> tuple[int, ...]:
    """The bucket's largest, smallest and middle true token count; only its own where no lookup asks for the bucket."""
    if not is_reachable_bucket(bucket):
        return (bucket,)
    counts = tokens_of(bucket)
    largest, smallest = min(counts[-1], bucket), max(counts[0], 1)
    return tuple(dict.fromkeys((largest, smallest, (largest + smallest) // 2)))


def _counts_to_run(subject: Subject) -> tuple[int, ...]:
    """All of a row's token counts, and a default plan's largest and smallest."""
    counts = counts_of(subject.key.shape.token)
    return counts if subject.row else counts[:2]


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
