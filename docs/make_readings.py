"""The table of readings, made from the code: ``python docs/make_readings.py`` writes docs/readings-table.md."""

from pathlib import Path

from slurmgpu.node.readings import Kind, Reading, discover

GENERATIONS = ("Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")

# Reading.since → (first generation, last generation, what it also depends on)
SINCE = {
    "all": ("Pascal", "Blackwell", ""),
    "Fermi": ("Pascal", "Blackwell", ""),
    "Kepler": ("Pascal", "Blackwell", ""),
    "Maxwell": ("Pascal", "Blackwell", ""),
    "Pascal": ("Pascal", "Blackwell", ""),
    "Volta": ("Volta", "Blackwell", ""),
    "Ampere": ("Ampere", "Blackwell", ""),
    "Ada, Hopper": ("Ada", "Blackwell", ""),
    "Hopper": ("Hopper", "Blackwell", ""),
    "Blackwell": ("Blackwell", "Blackwell", ""),
    "before Ampere": ("Pascal", "Turing", ""),
    "Ampere to Hopper": ("Ampere", "Hopper", ""),
    "ECC boards": ("Pascal", "Blackwell", "ECC"),
    "HBM boards": ("Pascal", "Blackwell", "memory type"),
    "by driver": ("Pascal", "Blackwell", "driver"),
    "newer drivers": ("Pascal", "Blackwell", "driver"),
    "R565": ("Pascal", "Blackwell", "driver R565"),
}


def table() -> str:
    """Markdown; ● the generation has it, – it has not."""
    head = ["metric", "kind", "every", "source", *GENERATIONS, "depends on", "with MIG"]
    rows = [head, ["---"] * len(head)]
    for reading in discover():
        rows += [row(reading, number) for number in range(len(reading.metrics))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n"


def row(reading: Reading, number: int) -> list[str]:
    metric = reading.metrics[number]
    first, last, also = SINCE[reading.since]
    span = range(GENERATIONS.index(first), GENERATIONS.index(last) + 1)
    dots = ["●" if at in span else "–" for at in range(len(GENERATIONS))]
    kind = {Kind.GAUGE: "value", Kind.COUNTER: "counter", Kind.STATE: "state"}[metric.kind]
    return [f"`{metric.name}`", kind, reading.tier.value, f"`{reading.call}`", *dots, also, reading.mig]


if __name__ == "__main__":
    Path(__file__).with_name("readings-table.md").write_text(table())
