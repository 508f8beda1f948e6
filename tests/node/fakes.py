"""A clock that the test moves."""


class FakeClock:
    """Monotonic and wall-clock time are ``now`` (s); waiting takes no time and no signal comes."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def uptime(self) -> float:
        return self.now

    def wait(self, seconds: float) -> int | None:
        return None
