"""Deep copies of objects as an API server stores them, far faster than `copy.deepcopy`."""

import copy
from typing import Any, Final

_AS_IT_IS: Final = {str, int, float, bool, bytes, type(None)}


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """As `copy.deepcopy` does, for maps and lists in their plain form without its detours.

    `memo`: by id, what is copied already; what is met again is the same copy again. What has a
    copy has to stay alive as long as the memo.
    """
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    known = memo.get(id(value))
    if known is not None:
        return known
    if kind is dict:
        made: Any = {}
        memo[id(value)] = made
        for key, each in value.items():
            made[key] = each if type(each) in _AS_IT_IS else copied(each, memo)
        return made
    if kind is list:
        made = []
        memo[id(value)] = made
        made.extend(each if type(each) in _AS_IT_IS else copied(each, memo) for each in value)
        return made
    return copy.deepcopy(value, memo)
