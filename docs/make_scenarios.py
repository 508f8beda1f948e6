"""The table of scenarios: ``python docs/make_scenarios.py RESULTS...`` takes what
``pytest tests/slurm --scenarios-out FILE`` wrote, whole or in part, into docs/scenarios.json and
docs/scenarios-table.md.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "scenarios.json"


def table(results: dict[str, list[dict[str, str]]]) -> str:
    """Markdown; a row for each way, and for each release what was seen."""
    releases = sorted(results, key=lambda release: tuple(map(int, release.split("."))))
    ways = dict.fromkeys(row["way"] for release in releases for row in results[release])
    by_way = {release: {row["way"]: row for row in results[release]} for release in releases}
    head = ["way", "GPUs", "times", *releases, "test"]
    lines = [head, ["---"] * len(head)]
    for way in ways:
        seen = [by_way[release].get(way) for release in releases]
        first = next(row for row in seen if row)
        sources = [f"{row['source']}" if row else "–" for row in seen]
        lines.append([way, first["gpus"], first["times"], *sources, f"`{first['test']}`"])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def kept() -> dict[str, list[dict[str, str]]]:
    """What docs/scenarios.json holds."""
    found: dict[str, list[dict[str, str]]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found


if __name__ == "__main__":
    merged = kept()
    for name in sys.argv[1:]:
        for release, rows in json.loads(Path(name).read_text()).items():
            ways = {row["way"]: row for row in merged.get(release, [])}
            merged[release] = list((ways | {row["way"]: row for row in rows}).values())
    KEPT.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n")
    (HERE / "scenarios-table.md").write_text(table(merged))
