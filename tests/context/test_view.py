"""The fold over a transcript: what of it is read, and what the model has been told."""

from __future__ import annotations

import msgspec

from palinurus.context.epoch import BOOTSTRAPPED, EPOCH, Epoch, Route
from palinurus.context.view import View, Views, fold, last_usage
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Message,
    Origin,
    OutsideText,
    Text,
    ToolResult,
    Usage,
    UserMessage,
    digest_of,
)
from palinurus.sessions.transcript import (
    BranchSummaryEntry,
    Broken,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChange,
    ResetEntry,
    Row,
    SessionHeader,
    ThinkingLevelChange,
    decode_row,
    encode_entry,
)

T = "2026-11-15T09:00:00.000Z"
ROUTE = Route("p", "m", "w")


class Story:
    """Entries in a row, each the child of the one before."""

    def __init__(self) -> None:
        self.entries: list[Entry | Broken] = [SessionHeader("s", T)]

    def add(self, kind: type[Entry], entry_id: str = "", **fields: object) -> str:
        name = entry_id or f"e{len(self.entries)}"
        self.entries.append(kind(name, T, self.entries[-1].id, **fields))  # type: ignore[arg-type]
        return name

    def said(self, message: Message | str) -> str:
        return self.add(MessageEntry, message=UserMessage(message) if isinstance(message, str) else message)

    def epoch(self, files: dict[str, str] | None = None) -> str:
        epoch = Epoch("new", ROUTE, "{}", "system", (), files or {})
        return self.add(CustomEntry, custom_type=EPOCH, data=msgspec.to_builtins(epoch))

    def view(self) -> View:
        return fold(self.entries)


def texts(view: View) -> list[str]:
    return [line.message.text for line in view.lines]


def test_of_nothing_nothing_is_read() -> None:
    assert fold([]) == View()


def test_after_a_reset_only_what_was_said_since_is_read() -> None:
    story = Story()
    story.epoch()
    story.said("before")
    reset = story.add(ResetEntry, reason="new")
    assert texts(story.view()) == []
    assert (story.view().epoch, story.view().reason, story.view().tail) == (None, "reset", reset)
    story.said("after")
    assert texts(story.view()) == ["after"]


def test_a_reset_may_keep_the_last_messages() -> None:
    story = Story()
    story.said("gone")
    kept = story.said("kept")
    story.said("kept too")
    story.add(ResetEntry, first_kept_entry_id=kept)
    assert texts(story.view()) == ["kept", "kept too"]


def test_a_compaction_puts_a_summary_in_the_place_of_what_it_sums_up() -> None:
    story = Story()
    story.epoch()
    story.said("one")
    kept = story.said("two")
    story.add(CompactionEntry, summary="They counted.", first_kept_entry_id=kept)
    view = story.view()
    assert texts(view)[1:] == ["two"]
    assert "They counted." in texts(view)[0]
    assert isinstance(view.lines[0].message, UserMessage)
    assert view.lines[0].message.origin == Origin.SYSTEM
    assert (view.epoch, view.reason) == (None, "compaction")


def test_a_compaction_that_names_no_known_entry_keeps_the_summary_alone() -> None:
    story = Story()
    story.said("one")
    story.add(CompactionEntry, summary="sum", first_kept_entry_id="nobody")
    assert len(story.view().lines) == 1


def test_a_second_compaction_sums_up_the_first() -> None:
    story = Story()
    story.said("one")
    first = story.add(CompactionEntry, summary="first", first_kept_entry_id="nobody")
    story.said("two")
    story.add(CompactionEntry, summary="second", first_kept_entry_id="nobody")
    assert [line.id for line in story.view().lines] != [first]
    assert "second" in texts(story.view())[0]
    assert len(story.view().lines) == 1


def test_an_abandoned_branch_is_read_only_as_its_summary() -> None:
    story = Story()
    root = story.said("root")
    story.said("wrong turn")
    story.entries.append(BranchSummaryEntry("b", T, root, from_id="e2", summary="tried the canal"))
    story.entries.append(MessageEntry("end", T, "b", message=UserMessage("back again")))
    assert texts(story.view())[0] == "root"
    assert "tried the canal" in texts(story.view())[1]
    assert texts(story.view())[2:] == ["back again"]


def from_elsewhere(story: Story) -> View:
    """The same transcript, taken over from another home."""
    rows = [Row(each.id, each.parent_id, encode_entry(each), Origin.OWNER) for each in story.entries]  # type: ignore[arg-type]
    return fold([decode_row(row) for row in rows])


def test_what_another_home_has_made_of_whatever_was_there_is_from_outside() -> None:
    story = Story()
    story.said("one")
    kept = story.said("two")
    says_so = {"outside": [], "origin": "owner", "madeBy": "model"}
    story.add(CompactionEntry, summary="of a page", first_kept_entry_id=kept, details=says_so)
    assert story.view().outside_texts == ()
    assert from_elsewhere(story).outside_texts == (OutsideText(digest_of("of a page")),)
    branch = Story()
    branch.add(BranchSummaryEntry, from_id="x", summary="tried the canal")
    assert branch.view().outside_texts == (OutsideText(digest_of("tried the canal")),)
    custom = Story()
    custom.add(CustomMessageEntry, custom_type="plugin", content="do this")
    assert from_elsewhere(custom).outside_texts == (OutsideText(digest_of("do this")),)
    assert custom.view().outside_texts == ()


def test_a_result_from_another_home_is_from_outside_whatever_it_says() -> None:
    story = Story()
    story.said("one")
    story.said(ToolResult("c", "web_fetch", "a page", origin=Origin.AGENT))
    assert from_elsewhere(story).outside_texts == (OutsideText(digest_of("a page")),)


def test_a_summary_is_the_same_text_however_much_before_it_is_read() -> None:
    story = Story()
    story.said("one")
    kept = story.said("two")
    story.add(CompactionEntry, summary="of words", first_kept_entry_id=kept)
    assert fold(story.entries[-1:]).lines[0].message == story.view().lines[0].message


def test_broken_rows_are_counted_and_cost_nothing_else() -> None:
    story = Story()
    story.said("one")
    story.entries.append(Broken("x", "e1", "no JSON"))
    story.entries.append(MessageEntry("e3", T, "x", message=UserMessage("two")))
    assert (texts(story.view()), story.view().broken) == (["one", "two"], 1)


def test_a_circle_of_parents_is_read_in_the_order_of_writing() -> None:
    entries = [MessageEntry(name, T, parent, message=UserMessage(name)) for name, parent in ("ac", "ba", "cb")]
    assert texts(fold(entries)) == ["a", "b", "c"]


def test_custom_messages_are_read_and_custom_entries_and_labels_are_not() -> None:
    story = Story()
    target = story.add(CustomMessageEntry, custom_type="x", content="the mail has come")
    story.add(CustomEntry, custom_type="x", data="state")
    story.add(LabelEntry, target_id=target, label="l")
    assert texts(story.view()) == ["the mail has come"]


def test_the_last_choice_of_model_and_thinking_holds_and_survives_a_reset() -> None:
    story = Story()
    story.add(ModelChange, provider="p", model_id="old")
    story.add(ModelChange, provider="p", model_id="a/b")
    story.add(ThinkingLevelChange, thinking_level="high")
    story.add(ResetEntry)
    assert (story.view().model, story.view().thinking) == ("p/a/b", "high")


def test_what_the_model_was_told_is_the_head_and_every_note_since() -> None:
    story = Story()
    story.epoch({"SOUL.md": "d1", "USER.md": "d1"})
    story.said(UserMessage("hi", context=(ContextNote("file", "text", "SOUL.md", "d2"), ContextNote("time", "now"))))
    assert story.view().shown_files == {"SOUL.md": "d2", "USER.md": "d1"}
    story.epoch({"SOUL.md": "d3"})
    assert story.view().shown_files == {"SOUL.md": "d3"}
    assert story.view().epoch_start == 1


def test_the_mark_of_a_finished_turn_belongs_to_its_epoch() -> None:
    story = Story()
    story.epoch()
    story.said("hi")
    assert not story.view().bootstrapped
    story.add(CustomEntry, custom_type=BOOTSTRAPPED)
    assert story.view().bootstrapped
    story.epoch()
    assert not story.view().bootstrapped


def test_an_epoch_that_cannot_be_read_is_none() -> None:
    story = Story()
    story.add(CustomEntry, custom_type=EPOCH, data={"reason": 7})
    assert story.view().epoch is None


def test_the_last_counted_call_and_what_came_after_it_are_found() -> None:
    story = Story()
    story.said("hi")
    story.said(AssistantMessage((Text("yes"),), usage=Usage(100, 10, 5)))
    story.said("and now?")
    story.said(AssistantMessage((), stop_reason="error"))
    assert last_usage(story.view()) == (115, 2)
    assert last_usage(View()) == (0, 0)


def test_an_entry_that_is_no_message_may_be_the_first_that_stays() -> None:
    story = Story()
    story.said("gone")
    mark = story.add(ModelChange, provider="p", model_id="m")
    story.said("kept")
    story.add(CompactionEntry, summary="sum", first_kept_entry_id=mark)
    assert texts(story.view())[1:] == ["kept"]


def test_a_cut_that_names_what_was_cut_before_keeps_what_is_read() -> None:
    story = Story()
    old = story.said("old")
    kept = story.said("kept")
    story.add(CompactionEntry, summary="first", first_kept_entry_id=kept)
    story.said("new")
    story.add(CompactionEntry, summary="second", first_kept_entry_id=old)
    assert texts(story.view())[1:] == ["kept", "new"]
    assert "second" in texts(story.view())[0]


def test_runs_of_a_turn_that_was_cut_are_known_until_the_next_cut() -> None:
    story = Story()
    story.said("one")
    story.add(CompactionEntry, summary="s", first_kept_entry_id="", details={"runs": ["r1", "r2"], "origin": "outside"})
    assert story.view().cut_runs == {"r1", "r2"}
    first = story.view().lines[0].message
    assert isinstance(first, UserMessage)
    assert first.origin == Origin.OUTSIDE
    story.add(ResetEntry)
    assert story.view().cut_runs == frozenset()


def test_what_was_counted_before_a_cut_does_not_count_behind_it() -> None:
    story = Story()
    story.epoch()
    story.said("hi")
    kept = story.said(AssistantMessage((Text("yes"),), usage=Usage(100, 10, 5)))
    story.add(CompactionEntry, summary="s", first_kept_entry_id=kept)
    assert last_usage(story.view()) == (0, 0)
    story.epoch()
    story.said("more")
    assert last_usage(story.view()) == (0, 0)
    story.said(AssistantMessage((Text("yes"),), usage=Usage(20)))
    assert last_usage(story.view()) == (20, 4)


def test_views_that_read_on_are_the_same_as_views_from_the_start() -> None:
    story, views = Story(), Views(most=1)
    told: list[View] = []
    for step in range(6):
        story.epoch({"SOUL.md": f"d{step}"})
        kept = story.said(f"message {step}")
        story.said(UserMessage("x", context=(ContextNote("file", "text", "SOUL.md", f"e{step}"),)))
        if step == 3:
            story.add(CompactionEntry, summary="s", first_kept_entry_id=kept)
        told.append(views.view("s", story.entries))
        assert told[-1] == story.view()
    assert told[0].shown_files == {"SOUL.md": "e0"}  # an old one does not change any more
    story.entries.append(MessageEntry("branch", T, "e2", message=UserMessage("back again")))
    assert views.view("s", story.entries) == story.view()
    assert views.view("s", story.entries[:5]) == fold(story.entries[:5])
    assert views.view("other", []) == View()
