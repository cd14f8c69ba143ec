"""A program that checks the DKIM signatures of one mail. It knows nothing of Palinurus.

Stdin is a line of JSON, the keys by their names in the DNS, and the mail; stdout says `valid` if one has signed it.
A hostile mail keeps dkimpy busy for hours: whoever starts this kills it.
"""

from __future__ import annotations

import json
import sys

import dkim

MAX_SIGNATURES = 3


def is_signed(raw: bytes, keys: dict[str, str]) -> bool:
    mail = dkim.DKIM(raw)
    signatures = [value for name, value in mail.headers if name.lower() == b"dkim-signature"]
    for number in range(min(len(signatures), MAX_SIGNATURES)):
        try:
            tags = dkim.util.parse_tag_value(signatures[number])
            # With `l` a signature is for the beginning of the mail only: anybody may add to it.
            if b"l" not in tags and mail.verify(number, dnsfunc=lambda name, timeout: _key(keys, name)):
                return True
        except (dkim.DKIMException, dkim.util.InvalidTagValueList):
            continue
    return False


def _key(keys: dict[str, str], name: bytes) -> bytes | None:
    found = keys.get(name.decode("ascii", "replace").rstrip("."))
    return None if found is None else found.encode()


if __name__ == "__main__":
    found = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write("valid" if is_signed(sys.stdin.buffer.read(), found) else "invalid")
