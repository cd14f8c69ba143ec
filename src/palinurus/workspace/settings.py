"""Defaults of the workspace that the config can change."""

UNTRUSTED_PATHS = (  # mail, saved pages and downloads: their text is from outside
    *("*.eml", "*.mbox", "*.msg", "*.mhtml", "*.html", "*.htm"),
    *("inbox/", "mail/", "maildir/", "downloads/", "attachments/"),
)
