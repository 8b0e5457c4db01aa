"""Rules about kernel policies of shape files."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

DENIED_KERNEL = Rule(
    "MOE307",
    "denied-kernel",
    Severity.ERROR,
    what="A row names a kernel that the shape's policy denies.",
    why="The shape file states why such kernels are wrong for this deployment.",
    fix="Tune the shape without that kernel, or change the policy in the shape file.",
)


@check
def denied_kernels(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        for deny in subject.denies:
            if kernel.matches(deny.match):
                pattern = ", ".join(f"{name}: {value}" for name, value in deny.match.items())
                message = (
                    f"kernelName{column} `{kernel.render()}` is denied by {{{pattern}}} at {deny.place}: {deny.reason}"
                )
                yield subject.finding(DENIED_KERNEL, message)
