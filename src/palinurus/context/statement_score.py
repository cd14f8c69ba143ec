"""Scores what an English sentence says of the user: a preference, a decision, a fact, a date, a commitment. Pure.

The evidence is grammar. Who states lasting things says `I`, `we` or `my` at the beginning of a clause, and a verb of
doing, having, liking or planning; who chats praises, speaks of `you`, hopes, points back, and says what is always true.
Each word is looked at once. Other languages are left to the phrases of notes.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from palinurus.text.fact_lines import mentionable

ENOUGH: Final = 2.0
_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)*|[,;:.!?()–—\"“”]|\s-+\s")
_CLAUSE = frozenset(
    [
        ",",
        ";",
        ":",
        ".",
        "!",
        "?",
        "(",
        ")",
        "–",
        "—",
        "-",
        '"',
        "“",
        "”",
        "and",
        "but",
        "because",
        "so",
        "that",
        "since",
        "while",
        "where",
        "when",
        "which",
        "although",
        "though",
        "as",
        "if",
    ]
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGLISH = _words(
    """the i'm i've i'd i'll my our we you your you're you've that's it's that and to for with have are been this
    they not of she his her their there from at on it is was were had will would could should a an so when like
    who by"""
)
_FOREIGN = _words(
    """de het een ik mijn je zijn der die das ist und ich mein wir el la los que mi su es le les est et il di è o
    os um uma meu minha una por con dem den ein eine mit für auf"""
)
_WE = _words("i we")
_CONTRACTED = {
    "'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would",
}  # fmt: skip
_OPENERS = _words(
    """hey hi hello oh wow well so and but also plus actually yeah yes yep yup ok okay sure anyway btw honestly
    cool great haha thanks agreed definitely absolutely cheers nice"""
)
_ADVERBS = _words(
    """just really also still always never actually finally recently currently usually often already even only
    absolutely absolutley totally definitely typically kinda sometimes rarely first now both all mostly normally
    rather generally lately seriously truly simply probably mainly regularly once ever been not"""
)
_LIKES = _words(
    """love loved like liked enjoy enjoyed adore hate dislike prefer preferred own live lived work worked drink
    eat speak play played collect teach drive wear sleep study studied run smoke use rent grew take wake cook bake
    train visit volunteer go ride read write swim hike paint sing dance practise pay meet keep spend need want
    plan owe"""
)
_TALK = _words(
    """think guess mean hope bet agree wonder wish suppose believe see know understand appreciate admire imagine
    hear heard feel felt swear can could should would might may ought gotta wanna said say told tell asked thought
    figured forgot recommend suggest doubt care had did does didn't couldn't won't wouldn't shouldn't doesn't
    shall say ask look try let hoped wondered noticed learn ran tried fixed changed updated installed checked
    tested deployed pushed committed restarted added removed copied pasted attached uploaded sent clicked opened
    closed"""
)
_PAST = _words(
    """went took got made bought sold found met chose gave began became built wrote read ate drank drove flew swam
    sang won lost left moved kept taught learnt learned broke spent came slept rode paid signed quit put wore
    caught fell grew held saw"""
)
_NO_PAST = _words("need feed speed bed red indeed exceed proceed succeed seemed looked agreed embed")
_MOODS = _words(
    """glad happy sad sorry proud grateful thankful sure excited stoked afraid amazed overwhelmed thrilled
    impressed curious back fine good great okay ok tired bored lost confused stuck aware done here there feeling
    hoping trying getting staying loving looking wondering talking saying asking seeing testing gonna up
    so very super really happy just too kind honored honoured inspired blessed ready all not more doing keeping
    thinking able certain seriously having making being reading positive optimistic"""
)
_PLANS = _words(
    """planning considering moving starting working allergic married vegetarian vegan born engaged divorced
    retired available responsible passionate interested keen into part participating hosting opening building
    writing running training studying joining from"""
)
_VAGUE = _words("it that this them these those him her one there everything something anything")
_PEOPLE = _words("you your you're you've you'll you'd yours yourself u ur yourselves")
_BACK = _words("it it's its this that that's these those there he she they his her their there's here here's they're")
_STATES = _words(
    """is are was were has have had isn't aren't lives live works costs starts begins ends opens closes expires
    arrives likes prefers hates loves studies speaks plays writes owns moved called takes comes leaves belongs
    weighs needs turns wants goes does will became got graduated gets drives teaches runs wakes stays met lies
    keeps"""
)
_TIMES = _words(
    """today yesterday tonight tomorrow monday tuesday wednesday thursday friday saturday sunday january february
    march april june july august september october november december week weekend month year summer winter autumn
    spring birthday anniversary mornings evenings weekends daily weekly ago deadline due until noon midnight"""
)
_PRAISE = _words(
    """awesome amazing great incredible beautiful wonderful fun important rewarding inspiring cool tough hard nice
    lovely fantastic magical priceless essential powerful fascinating refreshing good best huge super worth
    crazy wild exciting special stunning cute adorable brave must"""
)
_NOT_MINE = _words(
    """god goodness bad mistake opinion question turn point fault apologies pleasure message request last previous
    prompt guess heart mind thoughts support two community voice"""
)
_TO_ME = _words("me us")
_ACTS_ON = _words("helps help makes make keeps keep reminds relaxes calms brings bring inspires motivates")
_FAVOURITE = _words("favorite favorites favourite favourites fave go-to pick dream")
_ELIDED = _words("been still took went started finished moved bought booked")
_BEING = _words("am are was were")
_HAVING = _words("have has had")
_MODAL = _words("would will must don't can't cannot do")
_SOME = _words("a an two three four five six seven many no my our some")
_NOTHING_HAD = _words("question questions idea ideas problem feeling clue fun blast time error errors bug issue")
_ASKS_FOR = _words("know see ask understand test try help say check look do fix show find tell be get hear talk go")
_LEAST = 2  # words: I'm vegan
_NEAR = 3  # words behind the subject among which adverbs are left out
_LOOKS = _words("way idea color colors colour colours vibe look looks sound design photo pic picture")
_DEAR = _words("important special dear close interesting meaningful matters matter sacred")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_FORMS_OF_TELLING = re.compile(r"\b(?:to tell you|tell you|you know|thank you|see you)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=[\w,;:] )[A-Z][\w'’-]+")
_NAMES = re.compile(r"(?<=[\w,;:] )[A-Z][\w'’-]*[a-z][\w'’-]*\.?(?: [A-Z][\w'’-]*[a-z][\w'’-]*){0,2}")
_NO_NAMES = frozenset(("I'm", "I've", "I'll", "I'd", "I’m", "I’ve", "I’ll", "I’d", "The", "My", "Our", "But", "And"))
_OPINION = re.compile(
    r"\b(?:prefer|love|like|hate|dislike|enjoy|adore|can['’]t stand)\b|\bfavou?rite\b|\b(?:mag|liebe|hasse)\b",
    re.IGNORECASE,
)


def is_english(sentence: str) -> bool:
    words = {word.lower().replace("’", "'") for word in sentence.split()}
    english = len(words & _ENGLISH) + ("I" in sentence.split())
    return english > len(words & _FOREIGN) and not _WIDE.search(sentence)


def speaks_to_somebody(sentence: str) -> bool:
    return not _PEOPLE.isdisjoint(sentence.lower().replace("’", "'").split())


def praises(sentence: str) -> bool:
    return any(word.lower() in _PRAISE for word in re.findall(r"\w+", sentence))


def is_opinion(sentence: str) -> bool:
    """Whether it says what somebody likes."""
    return bool(_OPINION.search(sentence))


def names_in(sentence: str) -> tuple[str, ...]:
    """Names that can be told from a sentence alone: words in capitals behind its first one."""
    found = (" ".join(match.group().split()) for match in _NAMES.finditer(sentence))
    return mentionable(name for name in found if name.lower() not in _TIMES and name not in _NO_NAMES)[:5]


def statement_score(sentence: str, *, follows: bool = False) -> float:
    """From `ENOUGH` on it is worth storing. `follows`: the sentence before was stored, and may name the subject."""
    words = [word.lower().strip().replace("’", "'") for word in _WORD.findall(_FORMS_OF_TELLING.sub(",", sentence))]
    spoken = [word for word in words if word[0].isalnum()]
    if len(spoken) < _LEAST or not _PEOPLE.isdisjoint(spoken):
        return 0.0
    start = _opening(words)
    score = max(_of_subjects(words, start), _of_things(words, start, follows=follows), _elided(words, start))
    if score <= 0:
        return 0.0
    return score + _details(sentence, spoken) - 0.5 * min(2, len(_PRAISE.intersection(spoken)))


def _opening(words: Sequence[str]) -> int:
    """Where the sentence begins, behind `Hey Maria,` and the like."""
    at = 0
    while at < min(len(words), 6) and (
        words[at] in _OPENERS or (at and words[at - 1] in _OPENERS and _comma(words, at + 1))
    ):
        at += 1
        while at < len(words) and not words[at][0].isalnum():
            at += 1
    return at


def _comma(words: Sequence[str], at: int) -> bool:
    return at < len(words) and words[at] in (",", "!", ".")


def _of_subjects(words: Sequence[str], start: int) -> float:
    """The best of the clauses that begin with `I`, `we` or `my`."""
    best = 0.0
    for at in range(start, len(words)):
        before = at - 1 if words[at - 1] not in _ADVERBS else at - 2
        if at != start and words[before] not in _CLAUSE and words[at - 1] not in _TIMES:
            continue
        subject, _, contracted = words[at].partition("'")
        if subject in _WE:
            rest = [_CONTRACTED.get(f"'{contracted}", "")] if contracted else []
            best = max(best, _of_clause([*(each for each in rest if each), *words[at + 1 : at + 12]]))
        elif subject in ("my", "our") and not contracted and words[at + 1 : at + 2] and words[at + 1] not in _NOT_MINE:
            following = words[at + 1 : at + 10]
            if not _STATES.isdisjoint(following) or any(map(_is_past, following[1:4])):
                best = max(best, 2.5)
    return best


def _of_clause(words: Sequence[str]) -> float:
    """Of what follows the subject."""
    words = [word for at, word in enumerate(words) if word not in _ADVERBS or at > _NEAR]
    verb, rest = (words[0] if words else ""), words[1:]
    following = rest[0] if rest else ""
    if not following or not following[0].isalnum():
        return 0.0
    if following in ("looking", "thinking") and not _words("into of about").isdisjoint(rest[1:2]):
        return 2.0 if verb in _BEING or verb in _HAVING else 0.0
    if verb in _BEING:
        return _of_being(following)
    if verb in _HAVING:
        return _of_having(following, rest)
    if verb in _MODAL:
        return _of_modal(verb, following, rest)
    return _of_doing(verb, following, rest)


def _of_modal(verb: str, following: str, rest: Sequence[str]) -> float:
    if verb == "would":
        is_past = following.endswith(("ing", "ed"))  # I'd been …
        return 2.0 if is_past else 1.5 if following in ("love", "like", "prefer", "rather") else 0.0
    if verb in ("will", "must"):
        return 1.0  # a commitment, if it says when
    return 2.0 if following in _LIKES | _words("stand have") and len(rest) > 1 else 0.0


def _of_doing(verb: str, following: str, rest: Sequence[str]) -> float:
    if (following in _VAGUE and len(rest) < 4) or verb in _TALK:
        return 0.0
    if verb == "get":
        return 0.0 if following in _words("how what why where that it") or _NOTHING_HAD & set(rest) else 1.5
    if following == "to" and not _ASKS_FOR.isdisjoint(rest[1:2]):
        return 0.0
    if verb in ("need", "want") and following != "to":
        return 0.5  # often asked for now
    if verb in _LIKES:
        looks = following == "the" and not _LOOKS.isdisjoint(rest[1:2])
        return 1.0 if looks or following in _words("how it that this them when your") else 2.0
    return 1.5 if _is_past(verb) else 1.0


def _is_past(verb: str) -> bool:
    return verb in _PAST or (verb.endswith("ed") and verb not in _NO_PAST)


def _of_being(following: str) -> float:
    if following in _PLANS or following[0].isdigit():
        return 2.0
    if following in _MOODS:
        return 0.0
    if following.endswith("ing"):
        return 1.5
    return 2.0 if following in _words("a an the in at on of your by always off") else 1.0


def _of_having(following: str, rest: Sequence[str]) -> float:
    if following in _SOME or following[0].isdigit():
        return 2.0 if _NOTHING_HAD.isdisjoint(rest[:4]) else 0.0
    if following == "to":
        return 1.0
    if following in _VAGUE or following in _MOODS:
        return 0.0
    return 2.0 if following.endswith("ing") else 1.5


def _of_things(words: Sequence[str], start: int, *, follows: bool) -> float:
    """Of a clause about something else, which may say what it is to the user."""
    own = {"my", "our"}.intersection(words)
    is_back = bool(words[start : start + 1]) and words[start] in _BACK
    if is_back and not follows and not own:
        return 0.0
    best = 0.0
    for at in range(start + 1, len(words)):
        if words[at] in _TO_ME and words[at - 1] == "to" and not _DEAR.isdisjoint(words[max(at - 4, 0) : at]):
            best = 3.0
        elif words[at] in _TO_ME and words[at - 1] in _ACTS_ON:
            best = max(best, 1.5)
        elif words[at] in _FAVOURITE and own and "might" not in words:
            best = max(best, 2.0)
        elif (
            not is_back
            and words[at - 1] in ("is", "are", "was", "of", "it's")
            and words[at] in own
            and words[at + 1 : at + 2]
        ):
            is_part = words[at - 1] != "of" or "part" in words[:at]
            best = max(best, 2.0 if is_part and words[at + 1] not in _NOT_MINE else 0.0)
    return best


def _elided(words: Sequence[str], start: int) -> float:
    """`Took a short trip last week.` Who writes like that leaves out the subject."""
    first = words[start : start + 1]
    rest = words[start + 1 :]
    if not first or not rest or rest[0] in _VAGUE:
        return 0.0
    if first[0] in _ELIDED:
        return 2.0
    return 2.0 if first[0] in ("love", "loving", "prefer", "hate") and rest[0] in ("a", "to", "all") else 0.0


def _details(sentence: str, spoken: Sequence[str]) -> float:
    """A time, a number, a name; and enough words."""
    score = 0.5 if len(spoken) >= 6 else 0.0
    score += 0.5 if not _TIMES.isdisjoint(spoken) or any(word[0].isdigit() for word in spoken) else 0.0
    score += 0.5 if _NAME.search(sentence) else 0.0
    return score + (0.5 if not {"my", "our"}.isdisjoint(spoken) else 0.0)
