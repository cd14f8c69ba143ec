"""Forget words, or all of a conversation: the door. How it is done is in forgetting.py.

For those on the machine only. It tells how far it is, many times, and at the end what was done and what remains.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from msgspec import Struct

from palinurus.domain.errors import BadRequest, NotOffered
from palinurus.migrate.forgetting.report import ForgetProgress, ForgetReport
from palinurus.migrate.forgetting.words import SHORTEST
from palinurus.operations.following import follow
from palinurus.operations.forgetting import Forget, TellStage, forget_all
from palinurus.operations.house import House
from palinurus.operations.operation import operation


class Forgetting(Struct, frozen=True, omit_defaults=True):
    progress: ForgetProgress | None = None
    report: ForgetReport | None = None


@operation("forget", scope="admin", local=True)
async def forget_words(house: House, params: Forget) -> AsyncIterator[Forgetting]:
    """Take words, or a whole conversation, out of everything that holds them.

    What has begun to take words out goes on to its end, also when nobody listens any more.
    """
    latest: list[ForgetProgress] = []

    def tell(stage: str, done: int, total: int) -> None:
        latest[:] = [ForgetProgress(stage, done, total)]

    work = forgotten(house, params, tell)
    steps = follow(work, latest, to_its_end=params.apply)
    async with aclosing(steps):
        async for progress, report in steps:
            yield Forgetting(progress, report)


async def forgotten(house: House, params: Forget, tell: TellStage = lambda *_: None) -> ForgetReport:
    """Do it, or with no `apply` only look. Raises BadRequest, NotFound, NotOffered and StorageError."""
    if house.forgetting is None:
        raise NotOffered("this house keeps nothing that could be forgotten")
    _check(params)
    return await forget_all(house, house.forgetting, params, tell)


def _check(params: Forget) -> None:
    if bool(params.session) == bool(params.query):
        raise BadRequest("forget what?", hint="either a session or a query")
    if params.query and len(params.query.strip()) < SHORTEST:
        raise BadRequest(f"{params.query!r} stands everywhere", hint=f"at least {SHORTEST} letters")


OPERATIONS = (forget_words,)
