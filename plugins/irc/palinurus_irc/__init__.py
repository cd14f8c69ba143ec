"""IRC as a channel."""

from palinurus.plugin import PluginApp


def register(app: PluginApp) -> None:
    app.channel("irc", "palinurus_irc.channel:IrcChannel")
