"""Makes daily notes by rule, if no model writes them in time. Pure.

Only the owner's own statements are noted. What a tool has stored meanwhile is not noted again. Questions,
commands, small talk, tables and logs are no statements: they are useless in a year. A statement is recognised by a few
phrases (who I am, what is mine, what we decided, what shall always be so). In doubt it is left out: the transcript has
every word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, tzinfo
from enum import IntEnum

from msgspec import Struct

from palinurus.context.budget import MANY
from palinurus.context.statement_score import (
    ENOUGH,
    is_english,
    is_opinion,
    names_in,
    praises,
    speaks_to_somebody,
    statement_score,
)
from palinurus.context.view import Line
from palinurus.domain.clock import day_of
from palinurus.domain.messages import AssistantMessage, Origin, ToolResult, UserMessage
from palinurus.text.fact_lines import NotedFact
from palinurus.text.sentences import identifiers, is_small_talk, split_sentences
from palinurus.text.words import lazy_pattern

Compiled = Callable[[], re.Pattern[str]]
_GOES_ON = re.compile(r"\s*\n\s*(?=[|)])")  # a long phrase, in the next line


class Weight(IntEnum):
    """How much a sentence is worth storing."""

    NOTHING = 0  # a question, a command, small talk, no sentence at all
    PROSE = 1  # a statement; no rule can tell whether it lasts
    FACT = 2  # a statement of fact, as in many pasted texts
    OWN = 3  # a statement about the person: who, whose, what was decided
    ASKED = 4  # the person asks to store it, or sets a rule


def _any(phrases: str, *, before: str = r"\b", after: str = r"\b") -> Compiled:
    """A pattern of any of these comma-separated phrases, for lower-case text: many times faster."""
    alike: dict[str, list[str]] = {}  # grouped by their first letter
    for phrase in (" ".join(each.split()) for each in re.split(r",\s+", _GOES_ON.sub("", phrases))):
        alike.setdefault(phrase[0] if phrase[0].isalpha() else "", []).append(phrase)
    joined = "|".join(
        f"{letter}(?:{'|'.join(phrase[len(letter) :] for phrase in group)})" for letter, group in alike.items()
    )
    return lazy_pattern(f"{before}(?:{joined}){after}")


_WORDS = re.compile(r"[^\W\d_]+")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NO_PROSE = re.compile(
    r"\s*(?:/[\w-]*(?:\s|$)|[|{}<>\[\]$!=;\\`]|\d+[-/:.]\d+[-/:.T]\d|(?:[\w-]+\s*:\s*){2}|.*(?:HEARTBEAT|NO_REPLY)|\w+(?:Error|Exception|Warning)\b)"
)
_LABEL = re.compile(r"[:：]\s*$")
_NAME = re.compile(r"(?<=[\w,;:] )[A-Z][\w'’-]+")
_TELLING = re.compile(r"\d|@|://")
_POLITE = (
    r"^\W*(?:#\d+#\s+)?(?:(?:please|pls|bitte|por favor|s'il (?:te|vous) pla[iî]t|per favore|hey|hi|hello|hallo|hola|"
    r"ok|okay|yes|no|and|also|but|so|then|now|just|oh|well|pal|thanks|great|good|und|aber|ja|nein|y|e|et|и)[\s,.!:]+){0,4}"
)
_ASKED = _any(
    r"""(?:always |never )?remember, (?:don['’]?t|do not|never) forget, (?:make|take) a note,
    note(?: down)?(?:[:,]| that), write (?:this |that )?down, jot down, for the record,
    keep (?P<kept>.{0,120}?)\bin mind, for future reference, fyi, remind me(?! (?:wh|how|of wh)), to-?do\b, merke? dir,
    denk(?: bitte)? daran, vergiss nicht, notier, erinnere mich, recuerda, recuérda, no olvides, anota, apunta,
    souviens, rappelle, n'oublie, note que, retiens, lembre, lembra, não (?:se )?esqueça, anote, ricord,
    non dimenticare, onthoud, vergeet niet, herinner me, запомни, не забудь, напомни""",
    before=_POLITE + r"(?:(?:can|could|would|will|must|should) (?:you|we|i) )?(?:please )?",
    after="",
)
_ASKED_WIDE = lazy_pattern("记住|記住|记下|記下|别忘|別忘|记得|記得|覚えて|忘れないで|メモして|기억해|잊지")
_RULE_OF_ENGLISH = _any(
    r"""always, never(?! (?:mind|had|been|have|seen|thought|heard|knew|know|quit)), whenever, in (?:the )?future,
    (?:.{0,160} )?from now on, (?:.{0,80} )?(?:must|should) (?:not|never|always), call me(?! (?:back|when|if)),
    (?:don['’]?t|do not|stop|avoid) (?:use|using|call me|calling me|suggest|suggesting)""",
    before=_POLITE,
)
_RULE = _any(
    r"""immer, niemals, nie wieder, ab jetzt, von jetzt an, siempre, nunca, de ahora en adelante, toujours,
    jamais, désormais, sempre, d'ora in poi, altijd, nooit, voortaan, всегда, никогда"""
)
_RULE_WIDE = lazy_pattern("总是|總是|永远|永遠|从现在|以后|必须|一律|不要|必ず|決して|いつも|これから|항상|절대|앞으로")

# A word of each phrase above, in lower case: without one of them there is no request and no rule.
_ASKING = lazy_pattern(  # grouped by common beginnings: many times faster
    "a(?:lways|void|not|punta|hora|ltijd)|c(?:all)|d(?:on['’]?t|own|enk|imentic|ésormais)|e(?:rinner|sque)|f(?:orget|uture|yi)|"
    "h(?:erinner)|i(?:mmer)|j(?:etzt|amais)|l(?:embr)|m(?:ind|ust|erk)|n(?:ever|o[tw]|ie|unca|ooit)|o(?:lvid|ubli|nthoud)|"
    "p(?:oi)|r(?:emember|emind|ecord|ecu|appelle|etiens|icord)|s(?:hould|top|iempre|ouvien|empre)|t(?:odo|o-do|oujours)|"
    "v(?:ergiss|ergeet|oortaan)|w(?:henever)|запомни|забудь|напомни|всегда|никогда"
)
_ASKS = _any(
    r"""(?:what|who|whom|whose|which|why|how)\b, (?:when|where) (?:is|are|do|does|did|was|were|will|can|should)\b,
    (?:is|are|was|were|do|does|did|can|could|would|will|shall|may|has|have|had|am)
    (?:i|you|he|she|it|we|they|there|this|that|these|those|the|my|your|our|his|her|any|anyone|anybody)\b,
    (?:any|got any|tell me|i wonder|wondering)\b, (?:wer|wo|wann|warum|wie|wieso|welche[rsnm]?)\b,
    was (?:ist|sind|kann|macht)\b, ¿, (?:qué|quién|cuándo|dónde|cómo|cuál|por qué)\b,
    (?:qui|quand|où|comment|pourquoi|quel(?:le)?s?|est-ce)\b,
    (?:quem|quando|onde|como|qual|chi|dove|come|quale|perché)\b,
    (?:waar|wanneer|waarom|welke|кто|что|где|когда|почему|как)\b""",
    before=_POLITE,
    after="",
)
_ASKS_WIDE = lazy_pattern(
    "什么|甚麼|什麼|谁|誰|哪|怎么|怎麼|为什么|為什麼|多少|几点|[吗嗎呢]\\W*$|何時|何を|なに|どこ|いつ|なぜ|ですか|ますか"
    "|뭐|어디|언제|누구|까\\W*$"
)
_ORDERS = _any(
    r"""(?:can|could|would|will) you, i(?:['’]d| would) like you to, i (?:want|need) you to,
    you (?:can|should|could|must|may), go ahead, try, let me, help""",
    before=_POLITE,
)
_COMMAND = _any(
    r"""add, adjust, analy[sz]e, answer, apply, ask, book, build, buy, calculate, call, cancel, change, check,
    clean, close, commit, compare, compute, continue, convert, copy, count, create, delete, deploy, describe, do,
    don['’]?t, download, draft, edit, email, execute, explain, extract, fetch, find, finish, fix, format, generate,
    get, give, go, grep, implement, improve, include, install, keep, leave, list, load, look, make, merge, move,
    open, order, paste, plan, play, post, print, proceed, pull, push, put, quote, read, redo, refactor, reload,
    remove, rename, repeat, replace, reply, research, restart, retry, return, revert, review, rewrite, run, save,
    say, scan, schedule, search, see, send, set, shorten, show, sort, speak, start, stop, submit, suggest,
    summari[sz]e, switch, take, tell, test, think, translate, turn, undo, update, upload, use, verify, view, wait,
    walk, watch, write, zeig, lies, such, schreib, mach, gib, erklär, lösch, öffne, muestra, lee, busca, escribe,
    haz, dame, explica, borra, abre, montre, lis, cherche, écris, fais, donne, explique, supprime, ouvre, toon,
    lees, zoek, schrijf, maak, покажи, прочитай, найди, напиши, сделай""",
    before=_POLITE,
    after=r"\b(?! (?:is|are|was|were|has)\b)",
)
_COMMAND_WIDE = lazy_pattern(
    "^\\W*(?:请|請|帮我|幫我|给我|給我|打开|列出|读|看看|写|搜索|翻译)|(?:してください|して下さい|見せて|教えて|해줘|주세요)\\W*$"
)
_MINE = _any(
    r"""(?:my|our)\b(?! (?:god|goodness|bad|mistake|opinion|question|turn|point|fault|apologies|pleasure|message|request
    |last|previous|prompt)\b), meine?[rnms]?, unsere?[rnms]?, nuestr[oa]s?, notre, noss[oa]s?, nostr[oaie], mijn, onze,
    minha, meu, mio, mia, мо[йяиё], наш\w*, (?<!\w )(?:mi|mis|mon|ma|mes|min|mitt|mina)"""
)
_MINE_WIDE = lazy_pattern("我的|我们的|我們的|我家|私の|僕の|俺の|うちの|(?:^|\\s)(?:내|제|우리)\\s|나의")
_SELF = _any(  # lasting facts about a person; not what is going on now
    r"""(?:am|['’]m|are|['’]re|was|were|['’]ve been|have been)\b(?! (?:done|back|ready|here|sorry|(?:not )?sure|fine|ok
    |okay|confused|stuck|trying|asking|looking|getting|seeing|wondering|glad|happy|afraid|aware|talking|saying|testing
    |going to (?:check|try|see|look|do|ask|test)|just|so|very|good|well|tired|bored|sad|lost|waiting|thinking
    |curious)\b),
    (?:['’]ve|have|had)(?: got)?\b(?! (?:(?:a|an|another|one|some|no|any|two|the same) )?(?:more )?(?:questions?|ideas?
    |problems?|issues?|errors?|feeling|clue|to|seen|tried|been|noticed|read|done|checked|run|changed|fixed|just)\b),
    live[ds]?, work(?:ed)?, like, love, hate, dislike, prefer, enjoy, own, use, moved, bought, sold, drink, eat,
    speak, play, study, studied, learn, learnt, drive, drove, wear, sleep, grew up, (?:got )?married, chose,
    picked, decided, agreed, settled, booked, ordered, signed, joined, founded, plan, planned, always, never, take,
    wake, get up, cook, collect, teach, run, go by,
    (?:don['’]?t|do not|can['’]?t|cannot) (?:eat|drink|like|want|have|use|stand|drive|take|work|speak|own),
    (?:will|['’]ll) (?:be|meet|fly|travel|visit|marry|move|stay|arrive|leave|go|start|work|use|take|buy|get|have|keep),
    (?:(?:need|have|want|plan|hope) to|must) (?!know|see\b|ask|understand|test|try|help|say|check|look|do\b
    |(?:go|leave) now)\w+""",
    before=r"\b(?:i|we)(?: (?:really|still|usually|mostly|often|only|also|both|rather|currently|normally|now))? ?",
)
_SELF_TOO = _any(
    r"""let['’]?s (?:use|call|take|meet|go with|make it|choose), (?:decision|decided|agreed) (?:is|to|that|on),
    (?:ich|wir) (?:bin|sind|mag|mögen|muss|müssen|(?:wohn|leb|arbeit|lieb|hass|hab|heiß|trink|ess|sprech|fahr|nehm
    |werd)\w*),
    (?:mag|bin|wohne|habe) ich, soy, vivo, trabajo, prefiero, odio, me llamo, me gustan?, tengo, nací, vivimos, tenemos,
    je (?:suis|vis|travaille|préfère|déteste|m'appelle|bois|mange|dois), j['’](?:aime|ai|habite|adore|utilise),
    nous (?:avons|sommes), sou, moro, trabalho, prefiro, odeio, gosto, tenho, chamo-me, me chamo, sono, abito, lavoro,
    preferisco, mi chiamo, mi piace, ik (?:ben|woon|werk|hou|haat|heb|heet|drink|eet|moet),
    я (?:живу|работаю|люблю|ненавижу), меня зовут, у меня"""
)
_SELF_WIDE = lazy_pattern(
    "我(?:是|叫|住|在|喜欢|喜歡|讨厌|討厭|不吃|不喝|不喜|对|有|姓|爱|愛|每)|我们|我們|决定|決定|同意|"
    "私は|僕は|俺は|私が|住んで|好きです|嫌い|苦手|決めた|決まり|나는|저는|제가|살아|좋아|싫어"
)
_STATES = _any(
    r"""is, are, was, were, has, have, had, called, named, belongs?, born, live[sd]?, works, costs?, weighs?, leaves?,
    starts?, begins?, ends?, opens?, closes?, expires?, arrives?, departs?, stays?, lies, stands, needs, likes?,
    prefers?, hates?, stud(?:y|ies), speaks, plays, writes, owns, comes, takes, moved, will, deadline, due,
    appointment, ist, sind, war, hat, heißt, wohnt, liegt, kommt, kostet, gehört, steht, está, vive, tiene, cuesta,
    est, habite, coûte, fica, mora, tem, costa, heeft, woont, живет, живёт, стоит"""
)
_PASSING = _any(  # a current state
    r"""(?:is|are|was|were|has been|have been)(?: (?:still|now|not|always|just|really|very|so|quite|too|all|also
    |already))*
    (?:\w+ing|done|good|nice|fine|great|ok|okay|right|wrong|ready|broken|true|false|weird|strange|bad|better|worse|perfect
    |cool|funny|clear|correct|missing|empty|slow|fast|enough|back|here|there|gone|down|up|sure|easy|hard|interesting),
    bug, error, exception, traceback, warning, stack trace, failed, fails, failing, crash\w*"""
)
_OF_THE_TALK = _any(  # about the session itself: not understandable elsewhere
    r"""(?:i|we) (?:think|guess|believe|suppose|mean|feel), ^\W*you(?:['’]re)?, (?:have|take|took) a look,
    let['’]?s (?:start|begin|do|go|see|try|look|continue|move on|talk), questions?, frage, pregunta, pergunta, domanda,
    vraag, вопрос, the (?:first|second|third|last|next|other|same|blue|red) (?:one|option|test|part|point|chapter
    |version|file|line|paragraph|answer|idea), (?:is|are) (?:below|above|attached),
    (?:like|love|prefer|hate|use|take|want|fix|do|change|see|have|keep) (?:it|this|that|these|those|them)"""
)
_OF_THE_TALK_WIDE = lazy_pattern("问题|問題|質問|질문")
_POINTS_BACK = _any(
    r"""here(?:['’]s| is| are), it, its, it['’]s, this, that, that['’]s, these, those, there, he, she, they, his,
    her, their, es, das (?:ist|war), er, sie, ça, c['’]est, il, elle, eso, esto, isso, isto, questo, dat, het, это""",
    before=r"^\W*(?:(?:and|but|so|well|ok|okay|yes|no|also)[\s,]+){0,4}",
)
_POINTS_BACK_WIDE = lazy_pattern("^\\W*(?:这|這|那|它|他|她|これ|それ|あれ|이것|그것)")
_LEAST_WORDS, _LEAST_WIDE = 3, 5
_FACT_WORDS = 6  # minimum words of a fact without a name or a number


def may_ask(text: str) -> bool:
    """Whether a sentence of this text may weigh as much as ASKED: a fast check for very many texts."""
    return bool(_ASKING().search(text.lower()) or (not text.isascii() and _WIDE.search(text)))


def weigh(sentence: str, *, follows: bool = False) -> Weight:
    """The weight of one sentence of the user. `follows`: the one before was stored, and may name the subject."""
    wide = 0 if sentence.isascii() else len(_WIDE.findall(sentence))
    lower = sentence.lower()
    if _NO_PROSE.match(sentence) or _LABEL.search(sentence) or sentence.count("|") > 1:
        return Weight.NOTHING
    asks = sentence.rstrip("\"'”’) ").endswith(("?", "？"))
    asked = _is_asked(lower, wide) and not (asks and _ASKS().match(lower) and " that " not in sentence)
    if (asks and not asked) or is_small_talk(sentence):
        return Weight.NOTHING
    if asked:
        return Weight.ASKED
    if not _is_prose(sentence, wide) or _ASKS().match(lower) or (wide and _ASKS_WIDE().search(sentence)):
        return Weight.NOTHING
    back = bool(_POINTS_BACK().match(lower) or (wide and _POINTS_BACK_WIDE().match(sentence)))
    if not back and _is_rule(sentence, lower, wide):
        return Weight.ASKED
    mine = _MINE().search(lower) or (wide and _MINE_WIDE().search(sentence))
    english = is_english(sentence)
    if _ORDERS().match(lower) or _COMMAND().match(lower) or (wide and _COMMAND_WIDE().search(sentence)):
        is_told = mine and _STATES().search(lower, mine.end()) and not (english and speaks_to_somebody(sentence))
        return Weight.OWN if is_told else Weight.NOTHING
    if english:
        return _weigh_english(sentence, lower, back=back, follows=follows)
    if (back and not follows) or _OF_THE_TALK().search(lower) or (wide and _OF_THE_TALK_WIDE().search(sentence)):
        return Weight.PROSE
    if mine or _SELF().search(lower) or _SELF_TOO().search(lower) or (wide and _SELF_WIDE().search(sentence)):
        return Weight.OWN
    return Weight.FACT if _is_fact(sentence, lower, wide, back=back) else Weight.PROSE


def _is_rule(sentence: str, lower: str, wide: int) -> bool:
    return bool(_RULE_OF_ENGLISH().match(lower) or _RULE().search(lower) or (wide and _RULE_WIDE().search(sentence)))


def _weigh_english(sentence: str, lower: str, *, back: bool, follows: bool) -> Weight:
    if _OF_THE_TALK().search(lower):
        return Weight.PROSE
    if statement_score(sentence, follows=follows) >= ENOUGH or _SELF_TOO().search(lower):
        return Weight.OWN
    is_chat = speaks_to_somebody(sentence) or praises(sentence)
    is_exact = bool(_TELLING.search(sentence) or _NAME.search(sentence) or identifiers(sentence))
    is_told = (follows or not back) and not is_chat and (is_exact or lower.startswith("the "))
    return Weight.FACT if is_told and _is_fact(sentence, lower, 0, back=back) else Weight.PROSE


def _is_prose(sentence: str, wide: int) -> bool:
    """Whether it is prose and not a list of names."""
    words = _WORDS.findall(sentence)
    if wide >= _LEAST_WIDE:
        return True
    exact = identifiers(sentence)
    plain = len(words) - sum(len(_WORDS.findall(each)) for each in exact)
    return plain >= _LEAST_WORDS and plain > len(exact)


def _is_asked(sentence: str, wide: int) -> bool:
    found = _ASKED().match(sentence)
    if found:
        said = f"{found['kept'] or ''} {sentence[found.end() :]}"
        return len(_WORDS.findall(said)) > 1 or bool(_TELLING.search(said))
    return bool(wide and _ASKED_WIDE().search(sentence))


def _is_fact(sentence: str, lower: str, wide: int, *, back: bool) -> bool:
    if _PASSING().search(lower):
        return False
    telling = bool(_TELLING.search(sentence) or _NAME.search(sentence))
    if wide:
        return telling
    return bool(_STATES().search(lower)) and (telling or (not back and len(_WORDS.findall(sentence)) >= _FACT_WORDS))


PASTED = 4_000  # characters above which a message was probably pasted: its facts are not the user's own
AT_MOST = 12_000  # characters of notes at once; requested ones are always noted
NEWEST = 10_000  # lines that may fill them; older ones are checked only for requests
_AROUND = 30  # further characters of a line
WRITTEN_BY = ("memory_write", "memory_retain")
MUCH = 20_000  # characters of a session above which a model is always called
_WORD = re.compile(r"\w+")
_OPENING = 8  # words that may precede what to remember


class Statement(Struct, frozen=True):
    """A sentence of the owner."""

    text: str
    day: str
    weight: Weight

    @property
    def fact(self) -> NotedFact:
        return NotedFact(self.text, "opinion" if is_opinion(self.text) else "world", names_in(self.text), self.day)


def extract_notes(lines: Sequence[Line], *, zone: tzinfo = UTC) -> list[Statement]:
    """What is worth storing, in order; often nothing."""
    found = list(statements(lines, zone, whole_from=_whole_from(lines) if len(lines) > MANY else 0))
    room = AT_MOST - sum(len(each.text) + _AROUND for each in found if each.weight == Weight.ASKED)
    kept: set[int] = set()
    for number in sorted(range(len(found)), key=lambda at: (-found[at].weight, -at)):  # the newest first
        each = found[number]
        if each.weight == Weight.ASKED or (room := room - len(each.text) - _AROUND) >= 0:
            kept.add(number)
    return [found[number] for number in sorted(kept)]


def statements(lines: Sequence[Line], zone: tzinfo = UTC, *, whole_from: int = 0) -> Iterator[Statement]:
    """Statements in order, without repetitions.

    Of the lines before `whole_from` only requested ones.
    """
    known = {_key(text) for text in _written(lines)}
    for at, line in enumerate(lines):
        text = _own_words(line)
        if text and isinstance(line.message, UserMessage) and (at >= whole_from or may_ask(text)):
            own = Weight.FACT if len(text) < PASTED else Weight.OWN
            least = Weight.ASKED if at < whole_from else own
            for sentence, weight in _weighed(text):
                if weight >= least and not _is_known(key := _key(sentence), known):
                    known.add(key)
                    yield Statement(sentence, day_of(line.message.timestamp, zone), weight)


def _whole_from(lines: Sequence[Line]) -> int:
    """The first line that may give more than requested notes: later lines fill the space."""
    room, known = AT_MOST, {_key(text) for text in _written(lines)}
    for at in range(len(lines) - 1, max(len(lines) - NEWEST, 0) - 1, -1):
        for sentence, weight in _weighed(_own_words(lines[at])):
            if weight == Weight.OWN and not _is_known(key := _key(sentence), known):
                known.add(key)
                room -= len(sentence)
        if room < 0:
            return at
    return 0


def fills_notes(lines: Sequence[Line]) -> bool:
    """Whether these lines fill the notes, so that only requested ones of earlier lines fit."""
    return _whole_from(lines) > 0


def may_be_noted(row: str) -> bool:
    """Whether a stored row may hold a request or a memory write: a fast check of its text."""
    said = '"user"' in row and ("\\u" in row or may_ask(row[max(row.find('"content"'), 0) :]))
    return said or any(tool in row for tool in WRITTEN_BY)


def is_worth_asking(lines: Sequence[Line]) -> bool:
    """Whether a model could find anything to note: it is not called for a greeting (promise 20)."""
    if sum(len(line.message.text) for line in lines) > MUCH:
        return True
    said = (weight for line in lines for _, weight in _weighed(_own_words(line)))
    return any(weight > Weight.NOTHING for weight in said)


def _weighed(text: str) -> Iterator[tuple[str, Weight]]:
    follows = False
    for sentence in split_sentences(text):
        weight = weigh(sentence, follows=follows)
        follows = weight >= Weight.FACT
        yield sentence, weight


def _own_words(line: Line) -> str:
    message = line.message
    return message.text if isinstance(message, UserMessage) and message.origin == Origin.OWNER else ""


def _written(lines: Sequence[Line]) -> Iterator[str]:
    """What was written into memory, as far as it succeeded."""
    if not any(isinstance(line.message, ToolResult) and line.message.tool_name in WRITTEN_BY for line in lines):
        return
    wanted: dict[str, str] = {}
    for line in lines:
        match line.message:
            case AssistantMessage() as message:
                wanted |= {call.id: str(call.arguments.get("text", "")) for call in message.calls}
            case ToolResult(tool_name=name, is_error=False) as message if name in WRITTEN_BY:
                yield wanted.get(message.tool_call_id, "")


def _is_known(key: str, known: set[str]) -> bool:
    """Whether it is stored already: `Remember that the gate is green` is if `the gate is green` is."""
    words = key.split()
    return any(" ".join(words[first:]) in known for first in range(min(len(words) - 1, _OPENING)) or (0,))


def _key(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))
