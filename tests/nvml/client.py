"""A client process with the real pynvml on the simulated library.

Reads a Python expression from each line of its input and answers with a line of JSON. NVML's errors come back as
``{"error": code}``. ``h(i)`` is the handle of GPU i, ``n`` is pynvml.
"""

import json
import sys
import time

import pynvml as n


def h(index: int) -> object:
    return n.nvmlDeviceGetHandleByIndex(index)


def plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    return value if isinstance(value, int | float | str | None) else repr(value)


def main() -> None:
    scope = {"n": n, "h": h, "time": time, "held": {}}
    for line in sys.stdin:
        try:
            answer = {"value": plain(eval(line, scope))}  # noqa: S307 - the test's own lines
        except n.NVMLError as error:
            answer = {"error": error.value}
        print(json.dumps(answer), flush=True)


main()
