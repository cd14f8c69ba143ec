"""OpenAI's HTTP endpoints: every program that speaks to OpenAI can speak to an agent of this house.

A request is read into what was said (`history`), where (`place`) and which tools its client does (`calls`); `asking`
makes one message of it and hands it to the dispatcher, as every door does. What comes of the run is told in the shape
of the endpoint, at once (`chat`, `responses`) or in pieces (`stream`). Errors have OpenAI's shape here, because its
clients read no other.
"""
