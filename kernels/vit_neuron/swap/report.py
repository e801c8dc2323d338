"""What a swap did, layer by layer."""

from dataclasses import dataclass, field
from typing import Optional

HEADINGS = ("layer", "class", "kernel", "reason")


@dataclass(frozen=True)
class Row:
    """One layer: its path in the model, its class, the kernel it has or would get (None: left alone), and why."""

    path: str
    layer_class: str
    kernel: Optional[str]
    reason: str


@dataclass(frozen=True)
class Report:
    """`title` in a sentence, `rows` per layer; prints as a table."""

    title: str
    rows: tuple[Row, ...] = field(default=())

    @property
    def swapped(self) -> tuple[Row, ...]:
        """The rows with a kernel."""
        return tuple(row for row in self.rows if row.kernel)

    @property
    def left(self) -> tuple[Row, ...]:
        """The rows without."""
        return tuple(row for row in self.rows if not row.kernel)

    def __str__(self) -> str:
        cells = [
            HEADINGS,
            *((row.path or "(model)", row.layer_class, row.kernel or "-", row.reason) for row in self.rows),
        ]
        widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)
        return "\n".join([self.title, *(lines if self.rows else ())])

    def __rich__(self) -> str:
        """For rich, which is not needed: the same table, the layers that got a kernel in green."""
        title, *lines = str(self).replace("[", r"\[").splitlines()
        colours = ["bold", *("green" if row.kernel else "yellow" for row in self.rows)]
        return "\n".join([title, *(f"[{colour}]{line}[/]" for colour, line in zip(colours, lines))])
