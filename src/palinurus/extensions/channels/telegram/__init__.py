"""Telegram: one bot of @BotFather."""
