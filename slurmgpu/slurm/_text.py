"""Two helpers of the parsers: a wrong text in an error message, and commas that brackets protect."""

_SHOWN_CHARS = 60


def shown(text: str) -> str:
    """The text in quotes, on one line and short, for an error message."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}..."


def split_outside(text: str, brackets: str, separators: str = ",") -> list[str]:
    """The non-empty parts between separators that stand outside brackets, such as ``"[]"``.

    Raises ValueError, with the reason, when brackets are nested or do not pair up.
    """
    opening, closing = brackets[0], brackets[1]
    parts: list[str] = []
    begin = 0
    inside = False
    for at, char in enumerate(text):
        if char in brackets:
            if inside == (char == opening):
                raise ValueError(f"{opening} inside {brackets}" if inside else f"{closing} without {opening}")
            inside = not inside
        elif char in separators and not inside:
            parts.append(text[begin:at])
            begin = at + 1
    if inside:
        raise ValueError(f"{opening} without {closing}")
    parts.append(text[begin:])
    return [part for part in parts if part]
