"""The redactor of a process that does not hold the home: it knows the secrets of config and credentials too."""

from __future__ import annotations

from collections.abc import Mapping

from palinurus.config.agents import agent_ids
from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.config.secrets import Redactor
from palinurus.domain.errors import PalinurusError
from palinurus.providers.choose import key_variables
from palinurus.providers.keys.credentials import gather_credentials


def redactor_of(home: Home, env: Mapping[str, str]) -> Redactor:
    """Never raises: with a config that cannot be read, what is shaped like a secret is taken out still."""
    try:
        loaded = load_config(home, env)
        variables = key_variables(loaded.env)
        keys = [
            secret
            for agent in agent_ids(loaded.config)
            for secret in gather_credentials(loaded, home, agent, variables).secrets
        ]
    except PalinurusError:
        return Redactor()
    return Redactor((*loaded.secrets, *keys))
