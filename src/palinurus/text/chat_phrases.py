"""Small talk: messages that ask for no fact, so that a model that knows none may answer them.

A message counts only when every part of it is listed here. English only, because the small model speaks little else.
"""

from __future__ import annotations

import re
from functools import cache

MAX_CHARACTERS = 120
_PARTS = re.compile(r"[.,;:!?…\n]+|\s[-–—]\s")
_SPACES = re.compile(r"\s+")
_ORNAMENT = re.compile(r"[^\w\s'.,;:!?…–—-]+|(?<=[\s.,!?])[:;]-?[)(dp]+")  # emoji, and smileys such as :-)
_YOU = r"(?: (?:there|again|pal|scout|friend|my friend|buddy|mate|dear|everyone))?"
_HELLO = rf"(?:hi|hello|hey|hiya|heya|yo|howdy|greetings|good (?:morning|afternoon|evening|day)|morning|evening){_YOU}"
_PHRASES = (
    _HELLO,
    r"how (?:are you(?: doing| feeling)?|have you been|do you do|was your (?:day|night|weekend))",
    r"how(?:'s| is) (?:it going|life|everything|your day)|what'?s up|sup|are you (?:ok|okay|well|awake|there)",
    rf"(?:many )?thanks(?: a lot| so much| very much| again)?{_YOU}|thx|cheers|much appreciated",
    rf"thank you(?: so much| very much| again| kindly)?{_YOU}",
    rf"(?:bye|goodbye|bye bye|good night|farewell|cya|so long){_YOU}|see you(?: later| soon| tomorrow| around)?",
    r"take care|have a (?:nice|good|great|lovely) (?:day|evening|night|weekend|one)|sleep well",
    r"(?:can you |could you |please )*(?:tell|give) (?:me|us) (?:a|another|one more)(?: \w+)? joke(?: please)?",
    r"(?:a|another|one more) joke(?: please)?|make me (?:laugh|smile)|cheer me up|say something (?:funny|nice|kind)",
    r"(?:ha){2,}h?|(?:he){2,}|lol|rofl|funny|cool|nice|great|awesome|wonderful|amazing|good (?:one|job|work|bot)",
    r"well done|that(?:'s| is| was) (?:so |very |really )?(?:funny|nice|great|good|cool|sweet|kind|hilarious)",
    r"(?:you(?:'re| are)|ur) (?:so |very |really )?(?:funny|nice|great|sweet|kind|cute|awesome|the best|welcome)",
    r"(?:i )?(?:like|love) you|(?:nice|pleased|good|glad) to meet you|no worries|never mind",
    (
        r"(?:i(?:'m| am)|feeling) (?:so |very |really |a bit |a little )?"
        r"(?:bored|tired|sad|happy|lonely|excited|fine|good|well|great|ok|okay|sleepy|doing (?:well|fine|great))"
    ),
    r"happy (?:birthday|new year|holidays|easter|friday)|merry christmas|good luck|congratulations|welcome back",
)


@cache  # compiling takes some milliseconds, and most starts need none of it
def _talk() -> re.Pattern[str]:
    phrase = "|".join(_PHRASES)
    return re.compile(rf"(?:(?:{_HELLO}|ok|okay|and|oh|well|please) )*(?:{phrase})(?: (?:today|then|now|{phrase}))*")


def is_small_talk(text: str) -> bool:
    """Whether a message is nothing but small talk."""
    if len(text) > MAX_CHARACTERS:
        return False
    plain = _ORNAMENT.sub(" ", f" {text} ".lower().replace("’", "'"))
    parts = [part for each in _PARTS.split(plain) if (part := _SPACES.sub(" ", each).strip())]
    return bool(parts) and all(_talk().fullmatch(part) for part in parts)
