"""`/proposals` in a chat: lines for MEMORY.md that wait for the owner, who accepts, edits or rejects them."""

from __future__ import annotations

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.operations import accept_proposal, list_proposals, reject_proposal
from palinurus.operations.services import Services


async def answer_slash(services: Services, key: SessionKey, words: str, inbound: Inbound) -> str:
    """Raises BadRequest for another action, NotFound for a proposal that does not wait."""
    if inbound.origin != Origin.OWNER or not key.is_private:
        return "Proposals are private memory, which is shown in your own sessions only."
    action, _, rest = words.strip().partition(" ")
    proposal, _, text = rest.strip().partition(" ")
    if action in ("", "list"):
        found = (await list_proposals(services, agent=key.agent)).proposals
        lines = [f"{each.id}  {each.text} ({each.why})" for each in found]
        hint = "`/proposals accept ID`, `/proposals accept ID other words`, `/proposals reject ID`"
        return "\n".join([*lines, hint]) if lines else "Nothing is proposed for MEMORY.md."
    if action == "accept" and proposal:
        done = await accept_proposal(services, proposal=proposal, text=text.strip(), agent=key.agent)
        return f"MEMORY.md says now: {done.text}"
    if action == "reject" and proposal:
        done = await reject_proposal(services, proposal=proposal, agent=key.agent)
        return f"Not proposed again: {done.text}"
    raise BadRequest("say which one", hint="/proposals, /proposals accept ID, /proposals reject ID")
