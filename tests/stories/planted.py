"""Fifty facts, each with a question and the word that answers it, and talk to hide them in."""

from __future__ import annotations

import random

# ruff: noqa: E501  # a table, in several languages
# (as the user says it, what is asked months later, the word that must be found)
FACTS: tuple[tuple[str, str, str], ...] = (
    ("Remember that my sister Ada is allergic to walnuts.", "What is Ada allergic to?", "walnuts"),
    ("My locker at the gym is number 4471.", "What is the number of my locker at the gym?", "4471"),
    ("We decided to use Postgres for the archive.", "Which database did we choose for the archive?", "Postgres"),
    ("Please call me Skipper from now on.", "What should you call me?", "Skipper"),
    ("The dentist appointment is on 2027-02-11 at 09:40.", "When is the dentist appointment?", "2027-02-11"),
    ("My passport expires in March 2031.", "When does my passport expire?", "2031"),
    ("Never book flights before ten in the morning.", "When may flights not be booked?", "before ten"),
    ("The wifi at the cabin is called FjordFox.", "What is the wifi at the cabin called?", "FjordFox"),
    ("Our landlord is Mr. Okafor and he prefers letters.", "Who is our landlord?", "Okafor"),
    ("I prefer window seats on trains.", "Which seats on trains do I prefer?", "window"),
    (
        "The backup script lives in /opt/tools/nightly_copy.sh.",
        "Where is the backup script?",
        "/opt/tools/nightly_copy.sh",
    ),
    ("My car has the plate HH-KB-2087.", "What is the plate of my car?", "HH-KB-2087"),
    ("Bruno, our dog, was born on 3 May 2019.", "When was Bruno the dog born?", "2019"),
    ("We will meet the architect on Thursday at the quay.", "Where do we meet the architect?", "quay"),
    ("The invoice for the sails is INV-20931.", "Which invoice is for the sails?", "INV-20931"),
    ("I am learning Portuguese since the summer.", "Which language am I learning?", "Portuguese"),
    ("My mother lives in Trondheim and is turning 70.", "Where does my mother live?", "Trondheim"),
    ("The gate code of the marina is 7719.", "What is the gate code of the marina?", "7719"),
    (
        "I need to renew the boat insurance until 2026-12-31.",
        "Until when must the boat insurance be renewed?",
        "2026-12-31",
    ),
    ("We agreed that Priya writes the grant proposal.", "Who writes the grant proposal?", "Priya"),
    ("My shoe size is 43, and 42 in boots.", "What is my shoe size?", "43"),
    ("The spare key is with our neighbour Tomasz.", "Who has the spare key?", "Tomasz"),
    ("Always answer me in British spelling.", "Which spelling should you answer in?", "British"),
    ("The budget for the kitchen is 14,500 euros.", "What is the budget for the kitchen?", "14,500"),
    ("My favourite tea is lapsang souchong.", "What is my favourite tea?", "lapsang"),
    ("The project is called Halcyon internally.", "What is the project called internally?", "Halcyon"),
    ("I work at the Institute for Tidal Research.", "Where do I work?", "Tidal"),
    ("The server's address is 10.20.4.17 on port 8443.", "What is the server's address?", "10.20.4.17"),
    ("My blood type is O negative.", "What is my blood type?", "negative"),
    ("Don't forget that Lena's birthday is on 19 August.", "When is Lena's birthday?", "19 August"),
    ("We chose larch for the terrace because it lasts.", "Which wood did we choose for the terrace?", "larch"),
    ("The plumber is Ferreira, phone 040-5558812.", "What is the phone number of the plumber?", "040-5558812"),
    ("My cousin Idris studies medicine in Lyon.", "Where does Idris study?", "Lyon"),
    ("I hate coriander, never put it on a list.", "Which herb do I hate?", "coriander"),
    (
        "The repository is at https://git.example.org/tide/model.",
        "Where is the repository?",
        "git.example.org/tide/model",
    ),
    ("Our anniversary is the 21st of September.", "When is our anniversary?", "21st of September"),
    ("Todo: send the signed lease to Mrs. Vogel.", "Who must get the signed lease?", "Vogel"),
    ("My bicycle frame has the serial WSBC604K7.", "What is the serial of my bicycle frame?", "WSBC604K7"),
    (
        "The password hint for the vault is grandfather's ship.",
        "What is the password hint for the vault?",
        "grandfather",
    ),
    ("I moved the savings to the cooperative bank.", "Which bank has the savings?", "cooperative"),
    ("请记住，我的会员号是VIP-88213。", "我的会员号是什么？", "VIP-88213"),
    ("Merk dir: Der Schornsteinfeger kommt am 2026-12-09.", "Wann kommt der Schornsteinfeger?", "2026-12-09"),
    ("The cat's medicine is Felimazole, twice a day.", "What medicine does the cat get?", "Felimazole"),
    ("My boss is called Henrietta and likes short reports.", "What is my boss called?", "Henrietta"),
    ("We will fly to Reykjavik in February with Nadia.", "Where do we fly in February?", "Reykjavik"),
    ("The freezer breaks the fuse, so it stays on circuit 6.", "On which circuit is the freezer?", "circuit 6"),
    ("I have a meeting with the tax adviser Kowalczyk every April.", "Who is my tax adviser?", "Kowalczyk"),
    ("My desk is 74 cm high and that is right.", "How high is my desk?", "74"),
    ("The novel I am writing has the title Salt and Lanterns.", "What is the title of my novel?", "Lanterns"),
    ("Remind me that the ladder belongs to Mehmet.", "To whom does the ladder belong?", "Mehmet"),
)

_WHO = ("a friend", "somebody at work", "the man next door", "one of the children", "a colleague", "people", "they")
_DID = (
    "talked about the weather", "walked along the water", "watched an old film", "tried another recipe",
    "read the paper for a while", "went for a swim", "looked at pictures", "listened to the radio", "cleaned the stairs",
    "waited for the bus", "sat in the garden", "repaired a chair", "played cards", "thought about the holidays",
)  # fmt: skip
_HOW = ("and it was fine", "which took longer than expected", "as usual", "for no reason at all", "until it got dark")
_SAYS = (
    "That sounds like a good way to spend some time, and there is no hurry with the rest.",
    "It often helps to begin with a small part and look at the whole again afterwards.",
    "There are several ways to see it, and none of them is wrong.",
    "I can go into more detail whenever that would be useful to you.",
    "In general it is a question of habit more than of skill.",
    "Others have found the same, and most of them were quite content with it.",
)


def chatter(dice: random.Random, sentences: int) -> str:
    """Talk that nobody needs to remember, rarely the same twice."""
    said = []
    for _ in range(sentences):
        who, did, how = dice.choice(_WHO), dice.choice(_DID), dice.choice(_HOW)
        often = dice.choice(("again", "once", "twice"))
        said.append(f"{who.capitalize()} {did} and {dice.choice(_DID)}, {how}, {often}.")
    return " ".join(said)


def answer(dice: random.Random) -> str:
    """What a model says to that: long, polite and forgettable."""
    return " ".join(f"{dice.choice(_SAYS)} {chatter(dice, 1)}" for _ in range(6))
