"""E-mail: a mailbox that is read over IMAP and answers over SMTP. See channel.py."""
