"""Only what is nothing but small talk counts as small talk."""

from __future__ import annotations

import pytest

from palinurus.text.sentences import MAX_SMALL_TALK, is_small_talk


@pytest.mark.parametrize(
    "text",
    [
        "hi", "Hello there!", "hey pal, what’s up?", "hi how are you", "hi, how are you today?", "Good morning!",
        "How's it going?", "Thanks a lot!", "ok thanks", "thank you so much, bye", "tell me a joke",
        "Can you tell me another joke please?", "good night 🌙", "I’m bored :)", "haha that's funny", "hahaha",
        "Nice to meet you", "I am very tired.", "see you tomorrow", "You're the best!!!", "happy birthday",
    ],
)  # fmt: skip
def test_small_talk_is_recognised(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "?", "🌙", "help", "what can you do?", "who are you?", "hi, what colour is my bicycle?", "how is Anna?",
        "tell me a joke about my boss", "thanks, remember that the code is 1234", "what's up with the boat?",
        "nice restaurants in Lyon", "good morning, list files", "I am tired of Bob", "what time is it?", "today",
        "how are you and what is the capital of France", "hello world program in C", "read MEMORY.md", "I love tea",
        "thanks to Anna we sail on Friday", "hi\nremember that x", "happy birthday of Anna",
    ],
)  # fmt: skip
def test_whatever_says_more_is_not(text: str) -> None:
    assert not is_small_talk(text)


def test_a_long_text_is_never_small_talk() -> None:
    assert is_small_talk("hi " * (MAX_SMALL_TALK // 3))
    assert not is_small_talk("hi " * (MAX_SMALL_TALK // 3) + "hi")
