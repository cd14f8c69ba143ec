"""Small talk: sentences that ask for no fact, so that a model that knows none may answer them.

A message counts only when every part of it is known here, word for word. Whatever says more than that is a question to
the notes. English only, because the small model speaks little else.
"""

from __future__ import annotations

import re
from functools import cache

from palinurus.providers.provider import ModelRef

TALKER = ModelRef("embedded", "smollm2")
MOST_CHARACTERS = 120

_PARTS = re.compile(r"[.,;:!?…\n]+|\s[-–—]\s")
_SPACES = re.compile(r"\s+")
_ORNAMENT = re.compile(r"[^\w\s'.,;:!?…–—-]+|(?<=[\s.,!?])[:;]-?[)(dp]+")  # emoji, and smiles made of signs

_YOU = r"(?: (?:there|again|pal|scout|friend|my friend|buddy|mate|dear|everyone))?"
_HELLO = rf"(?:hi|hello|hey|hiya|heya|yo|howdy|greetings|good (?:morning|afternoon|evening|day)|morning|evening){_YOU}"
_HOW_ARE_YOU = (
    r"how (?:are you(?: doing| feeling)?|have you been|do you do|was your (?:day|night|weekend))"
    r"|how(?:'s| is) (?:it going|life|everything|your day)|what'?s up|sup|are you (?:ok|okay|well|awake|there)"
)
_THANKS = (
    rf"(?:many )?thanks(?: a lot| so much| very much| again)?{_YOU}|thx|cheers|much appreciated"
    rf"|thank you(?: so much| very much| again| kindly)?{_YOU}"
)
_BYE = (
    rf"(?:bye|goodbye|bye bye|good night|farewell|cya|so long){_YOU}|see you(?: later| soon| tomorrow| around)?"
    r"|take care|have a (?:nice|good|great|lovely) (?:day|evening|night|weekend|one)|sleep well"
)
_JOKE = (
    r"(?:can you |could you |please )*(?:tell|give) (?:me|us) (?:a|another|one more)(?: \w+)? joke(?: please)?"
    r"|(?:a|another|one more) joke(?: please)?|make me (?:laugh|smile)|cheer me up|say something (?:funny|nice|kind)"
)
_PRAISE = (
    r"(?:ha){2,}h?|(?:he){2,}|lol|rofl|funny|cool|nice|great|awesome|wonderful|amazing|good (?:one|job|work|bot)"
    r"|well done|that(?:'s| is| was) (?:so |very |really )?(?:funny|nice|great|good|cool|sweet|kind|hilarious)"
    r"|(?:you(?:'re| are)|ur) (?:so |very |really )?(?:funny|nice|great|sweet|kind|cute|awesome|the best|welcome)"
    r"|(?:i )?(?:like|love) you|(?:nice|pleased|good|glad) to meet you|no worries|never mind"
)
_MOOD = (
    r"(?:i(?:'m| am)|feeling) (?:so |very |really |a bit |a little )?"
    r"(?:bored|tired|sad|happy|lonely|excited|fine|good|well|great|ok|okay|sleepy|doing (?:well|fine|great))"
)
_WISHES = r"happy (?:birthday|new year|holidays|easter|friday)|merry christmas|good luck|congratulations|welcome back"
_ONE = f"{_HELLO}|{_HOW_ARE_YOU}|{_THANKS}|{_BYE}|{_JOKE}|{_PRAISE}|{_MOOD}|{_WISHES}"


@cache  # compiling takes some milliseconds, which a start without small talk can do without
def _talk() -> re.Pattern[str]:
    return re.compile(rf"(?:(?:{_HELLO}|ok|okay|and|oh|well|please) )*(?:{_ONE})(?: (?:today|then|now|{_ONE}))*")


def is_small_talk(text: str) -> bool:
    """Whether a message is nothing but small talk."""
    if len(text) > MOST_CHARACTERS:
        return False
    plain = _ORNAMENT.sub(" ", f" {text} ".lower().replace("’", "'"))
    parts = [_SPACES.sub(" ", part).strip() for part in _PARTS.split(plain)]
    said = [part for part in parts if part]
    return bool(said) and all(_talk().fullmatch(part) for part in said)
