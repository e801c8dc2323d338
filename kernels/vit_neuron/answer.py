"""Yes, or no with a sentence that a user can act on."""

from typing import NamedTuple, Union


class Answer(NamedTuple):
    """Whether the kernel takes a call; `reason` says why not, and is empty when it does."""

    ok: bool
    reason: str = ""


YES = Answer(True)


def first_no(*answers: Answer) -> Answer:
    """The first answer that is a no, or yes."""
    for answer in answers:
        if not answer.ok:
            return answer
    return YES


def at_most(size: int, limit: int, what: str) -> Answer:
    """No when `size` is above the `limit` of the kernel."""
    return YES if size <= limit else Answer(False, f"{what} {size}; the kernel takes at most {limit}")


def one_of(value: object, allowed: tuple[object, ...], what: str) -> Answer:
    """No when `value` is not among those that the kernel takes."""
    return YES if value in allowed else Answer(False, f"{what} {plain(value)}; the kernel takes {listed(allowed)}")


def listed(values: tuple[object, ...]) -> str:
    """'a, b or c'."""
    words = [plain(value) for value in values]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def plain(value: Union[object, str]) -> str:
    """A dtype without its 'torch.'; anything else as it prints."""
    return str(value).replace("torch.", "")
