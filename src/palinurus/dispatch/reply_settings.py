"""Settings of replies that stand among other keys of the core: `messages.*` and `agents.defaults.*`. The extension
channels reads them; what stands under `channels` is its own.
"""

from typing import Annotated, ClassVar, Literal

from palinurus.config.section import Section, option

AckScope = Literal["group-mentions", "group-all", "direct", "all", "off"]


class MessageSettings(Section, frozen=True):
    """What holds for messages of all channels."""

    ack_reaction: Annotated[str, option("An emoji on a message that was accepted.")] = ""
    ack_reaction_scope: Annotated[AckScope, option("Which messages get it.")] = "group-mentions"
    remove_ack_after_reply: Annotated[bool, option("Whether it is taken back when the reply was sent.")] = False


class BlockChunk(Section, frozen=True):
    """How long a part of a streamed reply is."""

    min_chars: Annotated[int, option("A part is not shorter, but the last one.", ge=1)] = 800
    max_chars: Annotated[int, option("A part is not longer.", ge=100)] = 1200
    break_preference: Annotated[Literal["paragraph", "newline", "sentence"], option("Where it is cut if possible.")] = (
        "paragraph"
    )


class BlockCoalesce(Section, frozen=True):
    """How short parts are joined."""

    idle_ms: Annotated[int, option("A part waits so long for the next one.", ge=0, le=60_000)] = 1000


class StreamSettings(Section, frozen=True):
    """How an agent's replies are sent part by part."""

    foreign: ClassVar = {"": "humanDelay", "blockStreamingCoalesce": "minChars maxChars"}

    block_streaming_default: Annotated[
        Literal["off", "on"], option("Whether finished parts of a reply are sent before it is complete.")
    ] = "off"
    block_streaming_break: Annotated[
        Literal["text_end", "message_end"], option("message_end: only when the model's message is complete.")
    ] = "text_end"
    block_streaming_chunk: Annotated[BlockChunk, option("How long a part is.")] = BlockChunk()
    block_streaming_coalesce: Annotated[BlockCoalesce, option("How short parts are joined.")] = BlockCoalesce()
