"""Slurm's commands as scripts that say what was recorded, and write down how they were asked."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "slurm"
RELEASES = ("22.05", "24.11", "25.11", "26.05")


def recorded(name: str) -> str:
    """What a command printed: without the command before it and the exit status after it."""
    return "\n".join((DATA / name).read_text(encoding="utf-8").split("\n")[1:-2])


class FakeCommands:
    """A folder of commands. ``asked`` and ``environment`` tell how one was called the last time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def put(self, name: str, script: str) -> None:
        """A command in sh; ``$HERE`` is the folder."""
        file = self.folder / name
        file.write_text(
            f"#!/bin/sh\nHERE={self.folder}\n"
            f'for word; do printf "%s\\n" "$word"; done > $HERE/{name}.asked\nenv > $HERE/{name}.env\n{script}\n',
            encoding="utf-8",
        )
        file.chmod(0o755)

    def say(self, name: str, output: str | bytes, status: int = 0, errors: str = "") -> None:
        """A command that prints always the same."""
        data = output.encode() if isinstance(output, str) else output
        (self.folder / f"{name}.out").write_bytes(data)
        (self.folder / f"{name}.err").write_text(errors, encoding="utf-8")
        self.put(name, f"cat $HERE/{name}.out; cat $HERE/{name}.err >&2; exit {status}")

    def put_sacct(self, release: str, as_json: str | None = None, text: str = "") -> None:
        """sacct of a release: its ``--helpformat``, its JSON, and a text in which \\x1e stands for the delimiter."""
        (self.folder / "help").write_text(recorded(f"{release}.sacct_helpformat.txt"), encoding="utf-8")
        (self.folder / "json").write_text(as_json or "", encoding="utf-8")
        (self.folder / "text").write_text(text, encoding="utf-8")
        no_json = "echo 'sacct: error: unable to find plugin: serializer/json' >&2; exit 1"
        self.put(
            "sacct",
            f"""
            case " $* " in
            *" --helpformat "*) exec cat $HERE/help;;
            *" --json "*) {no_json if as_json is None else "exec cat $HERE/json"};;
            esac
            for word; do case "$word" in --delimiter=*) d="${{word#*=}}";; esac; done
            sed "s/\x1e/$d/g" $HERE/text
            """,
        )

    def asked(self, name: str) -> list[str]:
        """The words after the command's name."""
        return (self.folder / f"{name}.asked").read_text(encoding="utf-8").split("\n")[:-1]

    def environment(self, name: str) -> dict[str, str]:
        text = (self.folder / f"{name}.env").read_text(encoding="utf-8")
        return dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
