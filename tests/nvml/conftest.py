"""Clients of the simulated library."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import simgpu


class NvmlCodeError(Exception):
    """NVML's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Client:
    """A process that has NVML open. Calling it evaluates an expression there."""

    def __init__(self, scenario: Path, **environment: str) -> None:
        self.scenario = scenario
        variables = {**os.environ, "SIMGPU_SCENARIO": str(scenario), **environment}
        variables["LD_LIBRARY_PATH"] = str(simgpu.library_dir())
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("client.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
        )

    def __call__(self, expression: str) -> Any:
        self.send(expression)
        return self.receive()

    def send(self, expression: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError("the client is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise NvmlCodeError(answer["error"])
        return answer["value"]

    def world(self, *lines: str, epoch: float = 0.0) -> simgpu.Scenario:
        """Change the world, and wait until the library has seen it."""
        made = simgpu.Scenario(list(lines), epoch)
        made.write(self.scenario)
        self("time.sleep(0.02)")
        return made

    def close(self) -> str:
        """End it; what it said on stderr."""
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    simgpu.Scenario(["gpus 8"]).write(tmp_path / "scenario")
    made = Client(tmp_path / "scenario", SIMGPU_CALLLOG=str(tmp_path / "calls"))
    made("n.nvmlInit()")
    yield made
    made.close()


@pytest.fixture
def refused() -> Any:
    """``refused(client, expression)``: the code with which NVML refuses it."""

    def code(of: Client, expression: str) -> int:
        with pytest.raises(NvmlCodeError) as caught:
            of(expression)
        return caught.value.code

    return code
