"""What a running gateway says of its accounts: in /metrics, and to `pal doctor`."""

from __future__ import annotations

import httpx2

from channels.channel_home import channel_home
from palinurus.config.home import Home


async def test_metrics_say_which_account_is_connected_and_what_it_received_and_sent(home: Home) -> None:
    async with channel_home(home) as channels:
        await channels.network.writes("hello")
        await channels.network.until(lambda: channels.network.texts)
        await channels.rests()
        figures = await metrics(channels.running.port, channels.running.token)
        assert 'pal_channel_connected{account="memory:default"} 1.0' in figures
        assert 'pal_channel_received_total{account="memory:default"} 1.0' in figures
        assert 'pal_channel_sent_total{account="memory:default"} 1.0' in figures
        channels.network.inbox.disconnected("the cable was cut")
        assert 'pal_channel_connected{account="memory:default"} 0.0' in await metrics(
            channels.running.port, channels.running.token
        )


async def metrics(port: int, token: str) -> list[str]:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        answer = await http.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        return answer.text.splitlines()
