"""Approvals in a chat: the exact plan with three buttons, or the command to type where a network has no buttons.

A button carries the id of the approval, the answer and the beginning of the plan's digest; only the owner's press
counts, and only for the plan that was shown.
"""

from __future__ import annotations

from msgspec import Struct

from palinurus.dispatch.channels import ButtonPress
from palinurus.domain.envelope import Button, Delivery
from palinurus.domain.errors import NotConfirmed, PalinurusError
from palinurus.domain.events import ApprovalAsked, render_plan, visible
from palinurus.extensions.channels.account import RunningAccount
from palinurus.operations.services import Services
from palinurus.tools.approval import Answer, outcome
from palinurus.tools.grant_issuer import GrantTerms

PREFIX = "approve"
DIGEST = 16  # characters of the digest that a button carries
LABELS: dict[Answer, str] = {"allow-once": "Allow once", "allow-always": "Always allow", "deny": "Deny"}
LONGEST_PLAN = 3_000  # characters; `pal approvals show` has all of it


class PressedAnswer(Struct, frozen=True):
    approval: str
    answer: Answer
    digest: str  # its beginning


def button_value(approval: str, answer: Answer, digest: str) -> str:
    return f"{PREFIX}:{approval}:{answer}:{digest[:DIGEST]}"


def read_press(value: str) -> PressedAnswer | None:
    """None: it is no answer to an approval."""
    kind, _, rest = value.partition(":")
    approval, _, rest = rest.partition(":")
    said, _, digest = rest.partition(":")
    answer = next((each for each in LABELS if each == said), None)
    is_whole = kind == PREFIX and approval and len(digest) == DIGEST
    return PressedAnswer(approval, answer, digest) if is_whole and answer else None


async def ask(services: Services, place: Delivery, session_key: str, asked: ApprovalAsked, *, buttons: bool) -> None:
    """Posts the question to where the run was started. Raises QueueFull or StorageError."""
    plan = "\n".join(render_plan(asked.plan))
    if len(plan) > LONGEST_PLAN:
        plan = f"{plan[:LONGEST_PLAN]}\n(cut: `pal approvals show {asked.id}` shows all of it)"
    fence = "`" * max(3, _longest_run(plan) + 1)
    text = f"**May I?** {visible(asked.reason)}\n{fence}\n{plan}\n{fence}"
    if not buttons:
        text += f"\nAnswer with `/approve {asked.id} allow-once`, `allow-always` or `deny`."
    choices = tuple(Button(label, button_value(asked.id, answer, asked.digest)) for answer, label in LABELS.items())
    key = question_key(asked.id)
    await services.deliveries.post(place, text, key, session_key=session_key, buttons=choices if buttons else ())


def question_key(approval: str) -> str:
    return f"approval:{approval}"


def _longest_run(text: str) -> int:
    longest = current = 0
    for char in text:
        current = current + 1 if char == "`" else 0
        longest = max(longest, current)
    return longest


async def answer_press(services: Services, account: RunningAccount, press: ButtonPress) -> str:
    """What is shown to the one who pressed. Never raises a PalinurusError."""
    pressed = read_press(press.value)
    if pressed is None:
        return "This button does nothing any more."
    if not services.reception.is_owner(account.name, press.sender):
        account.log.warning("%s:%s pressed a button of an approval and is not the owner", account.name, press.sender)
        return "Only the owner decides about approvals."
    try:
        approval = await services.approvals.find(pressed.approval)
        if not approval.digest.startswith(pressed.digest):
            return "This button is for another plan."
        settled = await services.approvals.answer(
            approval.id,
            pressed.answer,
            by=f"{account.name}:{press.sender}",
            where=account.name,
            digest=approval.digest,
            always=GrantTerms(),
        )
    except NotConfirmed as error:
        return f"{error.message} To confirm: /approve {pressed.approval} allow-always confirm"
    except PalinurusError as error:
        return str(error)
    return f"{outcome(settled).capitalize()}."
